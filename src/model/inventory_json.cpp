#include <nlohmann/json.hpp>

#include "model/inventory.hpp"

namespace fsdplan {
namespace {

using Json = nlohmann::ordered_json;

Json totals_json(const TensorTotals& totals) {
    return {{"tensors", totals.tensors}, {"numel", totals.numel}, {"bytes", totals.bytes.count}};
}

Json parameters_json(const Inventory& inventory) {
    Json out = totals_json(inventory.parameters);
    out["trainable_numel"] = inventory.trainable_numel;
    out["by_dtype"] = Json::array();
    for (const DTypeTotals& d : inventory.by_dtype) {
        Json entry = {{"dtype", name(d.dtype)}};
        entry.update(totals_json(d.totals));
        out["by_dtype"].push_back(std::move(entry));
    }
    return out;
}

}  // namespace

std::string inventory_json(const Inventory& inventory) {
    Json out;
    out["model"] = inventory.name;
    out["source"] = inventory.source;
    out["parameters"] = parameters_json(inventory);
    out["frozen"] = totals_json(inventory.frozen);
    out["buffers"] = totals_json(inventory.buffers);
    out["buffers"]["non_persistent_bytes"] = inventory.non_persistent.count;
    out["modules"] = inventory.modules;
    out["depth"] = inventory.depth;
    out["classes_known"] = inventory.classes_known;
    out["classes"] = Json::array();
    for (const ClassTotals& c : inventory.classes) {
        out["classes"].push_back({{"class", c.name}, {"instances", c.instances}, {"own_numel", c.own_numel}});
    }
    out["repeated_blocks"] = Json::array();
    for (const RepeatedBlock& b : inventory.blocks) {
        out["repeated_blocks"].push_back(
            {{"path", b.path}, {"class", b.class_name}, {"count", b.count}, {"numel", b.numel}});
    }
    out["tied"] = inventory.tied;
    out["shared_modules"] = inventory.shared_modules;
    out["no_split_classes"] = Json::array();
    for (const NoSplitClass& c : inventory.no_split) {
        out["no_split_classes"].push_back({{"class", c.name}, {"instances", c.instances}});
    }
    out["longest_sequence"] = inventory.longest_sequence ? Json(*inventory.longest_sequence) : Json();
    out["notes"] = inventory.notes;
    return out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace fsdplan
