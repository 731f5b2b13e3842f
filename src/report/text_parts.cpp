#include "report/text_parts.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/quantity.hpp"
#include "report/facts.hpp"

namespace fsdplan {

std::string fitted(const std::string& text, std::size_t columns) {
    return text.size() <= columns ? text : text.substr(0, columns - 3) + "...";
}

std::string wrapped(const std::string& text, std::size_t indent) {
    std::string out;
    std::size_t column = indent;
    std::size_t begin = 0;
    while (begin < text.size()) {
        const std::size_t end = std::min(text.find(' ', begin), text.size());
        const std::string word = text.substr(begin, end - begin);
        if (column + word.size() + 1 > text_width && column > indent) {
            out += '\n' + std::string(indent, ' ');
            column = indent;
        } else if (begin > 0) {
            out += ' ';
            ++column;
        }
        out += word;
        column += word.size();
        begin = end + 1;
    }
    return out;
}

std::string row(std::string_view head, const std::string& text) {
    constexpr std::size_t indent = 11;
    return fmt::format("{:<{}}{}\n", head, indent, wrapped(text, indent));
}

std::string shown_path(const std::string& path) {
    return path.empty() ? "the root" : path;
}

std::string question_lines(const SweepQuestion& question, const TrainingJob& job) {
    const ParameterTotals totals = totals_of(question.tree);
    const Dtypes dtypes = dtypes_of(question.tree, job);
    const Cluster& cluster = question.cluster;
    std::string text =
        fmt::format("{} ({}), {} parameters", question.model.name,
                    short_name(question.tree.class_info(ModuleIndex{0}).name), show_numel(totals.numel));
    if (totals.trainable_numel != totals.numel) {
        text += fmt::format(", {} trainable", show_numel(totals.trainable_numel));
    }
    text += fmt::format(", stored in {}, on {} x {}{}", name(dtypes.stored), cluster.gpus, cluster.gpu.title,
                        cluster.nodes() > 1 ? fmt::format(" in {} nodes", cluster.nodes()) : std::string());
    std::string how =
        fmt::format("{} {}, {} x {} tokens a GPU", job.runtime, name(job.strategy), job.batch, job.sequence);
    if (job.mesh.replicate > 1 && job.mesh.shard > 1) {
        how += fmt::format(", mesh {}x{}", job.mesh.replicate, job.mesh.shard);
    }
    if (job.accumulate > 1) {
        how +=
            fmt::format(", {} micro-batches{}", job.accumulate, job.no_sync ? " without gradient sync" : "");
    }
    how += fmt::format(", {} compute, {} reduction, {}, loss {}", name(dtypes.compute), name(dtypes.reduce),
                       name(job.optimizer), name(job.loss));
    how += job.activation_checkpointing == ActivationCheckpointing{}
               ? std::string(", no activation checkpointing")
               : ", activation checkpointing " + name(job.activation_checkpointing);
    how += job.offload ? ", offload to host memory" : "";
    return wrapped(text, 0) + "\n" + wrapped(how, 0) + "\n";
}

}  // namespace fsdplan
