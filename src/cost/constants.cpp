#include "cost/constants.hpp"

#include <array>

namespace fsdplan {
namespace {

// Taken where a GPU's file says nothing: what A100 and H100 have in common, and room for what they have not.
constexpr std::array<ConstantInfo, 6> table{{
    {"products", &GpuConstants::products, 0.7, 0.5, 0.85,
     "share of the dense peak that large matrix products keep up"},
    {"product_start", &GpuConstants::product_start, 384, 256, 512,
     "depth of a matrix product whose work takes as long as its start"},
    {"attention_forward", &GpuConstants::attention_forward, 0.5, 0.3, 0.7,
     "share of the dense peak that FlashAttention 2 reaches forward"},
    {"attention_backward", &GpuConstants::attention_backward, 0.42, 0.25, 0.6,
     "share of the dense peak that FlashAttention 2 reaches backward"},
    {"memory", &GpuConstants::memory, 0.85, 0.6, 0.92,
     "share of the memory's bandwidth that kernels keep up"},
    {"overlap", &GpuConstants::overlap, 0.82, 0.6, 1.0, "speed that kernels keep while a collective runs"},
}};

constexpr double largest = 1e6;

double number_in(const json::Value& value, double low, double high) {
    const double number = value.number();
    if (!(number >= low) || !(number <= high)) {
        value.fail("a number between the low and the high one");
    }
    return number;
}

}  // namespace

std::span<const ConstantInfo> gpu_constants() {
    return table;
}

GpuConstants read_constants(const std::optional<json::Value>& object) {
    GpuConstants out;
    for (const ConstantInfo& info : table) {
        out.*info.member = {.value = info.value, .low = info.low, .high = info.high, .source = {}};
    }
    if (!object) {
        return out;
    }
    object->allow_only(
        {"products", "product_start", "attention_forward", "attention_backward", "memory", "overlap"});
    for (const ConstantInfo& info : table) {
        if (const auto entry = object->find(info.name)) {
            entry->allow_only({"value", "low", "high", "source"});
            Constant& constant = out.*info.member;
            constant.low = number_in(entry->at("low"), 0.0, largest);
            constant.high = number_in(entry->at("high"), constant.low, largest);
            constant.value = number_in(entry->at("value"), constant.low, constant.high);
            constant.source = entry->at("source").string();
        }
    }
    return out;
}

std::vector<std::string> assumed_constants(const Gpu& gpu) {
    std::vector<std::string> lines;
    for (const ConstantInfo& info : table) {
        const Constant& constant = gpu.constants.*info.member;
        if (constant.source.empty()) {
            lines.push_back(gpu.name + ": not known: " + std::string(info.meaning) + " (" +
                            std::string(info.name) + "); the usual one is taken, in a wide interval");
        }
    }
    return lines;
}

}  // namespace fsdplan
