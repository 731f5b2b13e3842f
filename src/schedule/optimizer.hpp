#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "schedule/emitter.hpp"

// What an optimizer keeps and what its step does. An optimizer is one file in src/schedule/optimizers.
namespace fsdplan {

/// A parameter as the optimizer of one rank has it.
struct LocalParameter {
    std::int64_t numel = 0;  ///< of this rank's part
    DType dtype = DType::float32;
    /// Of the whole parameter; empty: what flat parameters hold has one dimension.
    std::span<const std::int64_t> shape{};
    std::int64_t ranks = 1;  ///< that share its rows

    std::int64_t bytes() const { return bytes_of(numel, dtype).count; }
    std::size_t dimensions() const { return shape.empty() ? 1 : shape.size(); }
};

/// A tensor that the optimizer keeps for a parameter.
struct StateBuffer {
    std::int64_t bytes = 0;
    bool on_host = false;
};

/// One step over the parameters of a rank, written down as the optimizer runs it.
class OptimizerStep {
public:
    /// Memory that goes with its holder, as a tensor goes with the last name that it has in Python.
    class Temporary {
    public:
        Temporary() = default;
        Temporary(Emitter& emit, std::int32_t buffer) : emit_(&emit), buffer_(buffer) {}
        Temporary(const Temporary&) = delete;
        Temporary& operator=(const Temporary&) = delete;
        Temporary(Temporary&& other) noexcept { swap(other); }
        Temporary& operator=(Temporary&& other) noexcept {
            Temporary taken(std::move(other));
            swap(taken);
            return *this;
        }
        ~Temporary() { reset(); }

        void reset() {
            if (emit_ != nullptr) {
                std::exchange(emit_, nullptr)->release(buffer_);
            }
        }

    private:
        void swap(Temporary& other) noexcept {
            std::swap(emit_, other.emit_);
            std::swap(buffer_, other.buffer_);
        }
        Emitter* emit_ = nullptr;
        std::int32_t buffer_ = -1;
    };

    /// A list of them, which Python clears from its end.
    class TemporaryList {
    public:
        TemporaryList() = default;
        TemporaryList(const TemporaryList&) = delete;
        TemporaryList& operator=(const TemporaryList&) = delete;
        TemporaryList(TemporaryList&&) noexcept = default;
        TemporaryList& operator=(TemporaryList&& other) noexcept {
            clear();
            each_ = std::move(other.each_);
            return *this;
        }
        ~TemporaryList() { clear(); }

        void add(Temporary one) { each_.push_back(std::move(one)); }

    private:
        void clear() noexcept {
            while (!each_.empty()) {
                each_.pop_back();
            }
        }
        std::vector<Temporary> each_;
    };

    OptimizerStep(Emitter& emit, Optimizer::Implementation implementation,
                  std::span<const LocalParameter> parameters, std::int64_t multiprocessors)
        : emit_(emit),
          implementation_(implementation),
          parameters_(parameters),
          multiprocessors_(multiprocessors) {}

    Optimizer::Implementation implementation() const { return implementation_; }
    bool is(Optimizer::Implementation other) const { return implementation_ == other; }
    std::span<const LocalParameter> parameters() const { return parameters_; }
    /// Of the GPU: how kernels share out decides their scratch memory.
    std::int64_t multiprocessors() const { return multiprocessors_; }
    std::int64_t bytes() const;  ///< of all parameters
    Temporary allocate(std::int64_t bytes);
    /// Kernels that read and write so many bytes.
    void run(std::int64_t bytes, std::int32_t launches, std::int64_t flops = 0);
    /// The host reads a number back.
    void synchronise();
    void exchange(CollectiveKind kind, DType dtype, std::int64_t ranks, std::int64_t input_numel,
                  std::int64_t output_numel);

private:
    Emitter& emit_;
    Optimizer::Implementation implementation_;
    std::span<const LocalParameter> parameters_;
    std::int64_t multiprocessors_;
};

/// An entry is one file in src/schedule/optimizers.
struct OptimizerInfo {
    std::string_view name;
    std::string_view help;
    /// The first is what PyTorch takes; empty: there is one only.
    std::span<const Optimizer::Implementation> implementations = {};
    std::string_view states;                                               ///< what it keeps, in words
    std::string_view (*temporaries)(Optimizer::Implementation) = nullptr;  ///< what a step holds, in words
    /// In the order of their creation, device memory and host memory.
    std::vector<StateBuffer> (*keep)(const LocalParameter& parameter, Optimizer::Implementation) = nullptr;
    void (*step)(OptimizerStep& step) = nullptr;
    /// What PyTorch 2.13 says to parameters of this form; empty: nothing. Null: it takes all.
    std::string_view (*refused)(ParameterForm form, Optimizer::Implementation) = nullptr;
    std::string_view smaller = {};  ///< an optimizer that does the same with less memory; empty: none
};

std::span<const OptimizerInfo* const> optimizers();
/// Throws Error(input) at --optimizer with the nearest names.
const OptimizerInfo& optimizer(std::string_view name);

}  // namespace fsdplan
