#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fsdplan/model.hpp"

namespace fsdplan {

class Scope;

/// Builds a ModelGraph in the order in which PyTorch would construct the model.
class GraphBuilder {
public:
    static constexpr std::size_t most_modules = 4'000'000;

    /// `name` is shown to the user and is the place that size errors name.
    GraphBuilder(std::string name, std::string source);

    /// The first module; called once, before anything else.
    Scope root(const ModuleClass& module_class);
    /// The dtype of parameters and buffers that name none.
    void set_dtype(DType dtype) { dtype_ = dtype; }
    DType dtype() const { return dtype_; }

    ModelGraph& graph() { return graph_; }
    /// The finished graph; the builder is empty afterwards.
    ModelGraph finish();

private:
    friend class Scope;
    ModuleIndex add_module(const ModuleClass& module_class);
    TensorIndex add_tensor(std::vector<std::int64_t> shape, DType dtype, bool requires_grad);

    ModelGraph graph_;
    std::map<std::string, ClassIndex, std::less<>> classes_;
    DType dtype_ = DType::float32;
    std::int64_t total_ = 0;
};

/// A module under construction. Registration order is call order.
class Scope {
public:
    Scope child(std::string name, const ModuleClass& module_class) const;
    /// Hangs an existing module into another slot (a shared module).
    void share(std::string name, Scope module) const;

    void parameter(std::string name, std::vector<std::int64_t> shape, std::optional<DType> dtype = {}) const;
    void buffer(std::string name, std::vector<std::int64_t> shape, std::optional<DType> dtype = {},
                bool persistent = true) const;
    /// Registers `other`'s parameter here as well: under a new name, or in place of this module's own.
    void tie(std::string_view name, Scope other, std::string_view other_name) const;
    /// Drops a parameter that was registered (`self.bias = None`).
    void drop_parameter(std::string_view name) const;

    /// The child registered under this name; it must exist.
    Scope operator[](std::string_view child_name) const;
    /// The child registered under this name, if there is one.
    std::optional<Scope> find(std::string_view child_name) const;
    /// Shape of a parameter of this module; it must exist.
    const std::vector<std::int64_t>& shape(std::string_view parameter_name) const;
    /// Turns requires_grad off for this module's own parameters.
    void freeze() const;

    GraphBuilder& builder() const { return *builder_; }
    ModuleIndex index() const { return module_; }

private:
    friend class GraphBuilder;
    Scope(GraphBuilder* builder, ModuleIndex module) : builder_(builder), module_(module) {}
    ModuleNode& node() const { return builder_->graph_.modules[at(module_)]; }

    GraphBuilder* builder_;
    ModuleIndex module_;
};

}  // namespace fsdplan
