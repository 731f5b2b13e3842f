#include "frontend_options.hpp"

#include "arguments.hpp"

namespace fsdplan::cli {

void FrontendOptions::declare(Arguments& arguments) {
    files.resize(builtin::frontends().size());
    arguments.group("Settings of other tools");
    for (std::size_t i = 0; i < files.size(); ++i) {
        const FrontendInfo& info = *builtin::frontends()[i];
        arguments.option(std::string(info.option), files[i],
                         std::string(info.help) + "; the command line wins over it", "FILE");
    }
}

std::optional<FrontendPlan> FrontendOptions::read(const ModelGraph& model, const ModuleTree& tree,
                                                  const TrainingJob& job, std::int64_t ranks) const {
    std::optional<FrontendPlan> plan;
    std::string_view before;
    for (std::size_t i = 0; i < files.size(); ++i) {
        if (!files[i]) {
            continue;
        }
        const FrontendInfo& info = *builtin::frontends()[i];
        if (plan) {
            throw Error(ErrorKind::input, std::string(info.option),
                        "is given beside " + std::string(before) + "; one file decides");
        }
        before = info.option;
        plan = read_settings(info, *files[i],
                             {.model = model, .tree = tree, .job = job, .ranks = static_cast<int>(ranks)});
    }
    return plan;
}

ModelGraph with_trainable_dtype(ModelGraph graph, DType dtype) {
    for (Tensor& tensor : graph.tensors) {
        if (tensor.requires_grad && is_floating_point(tensor.dtype)) {
            tensor.dtype = dtype;
        }
    }
    return graph;
}

}  // namespace fsdplan::cli
