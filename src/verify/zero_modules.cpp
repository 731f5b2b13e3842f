#include "verify/zero_modules.hpp"

#include <algorithm>
#include <map>

#include "verify/traffic.hpp"

// Taken from the recording, since nothing in it allows to derive them: the order of module hooks, and which
// parameter another module than its own reads in its forward (the first iteration shows a gather that no hook
// has asked for).
namespace fsdplan {
namespace {

class Reader {
public:
    Reader(const json::Value& recording, const ZeroCase& run) : recording_(recording), run_(run) {}

    ZeroModules read() {
        zero::MicroBatch& micro_batch = out_.micro_batch;
        read_hooks();
        mark_recomputed();
        read_modules();
        read_external();
        micro_batch.gradients = zero::place_gradients(out_.modules, micro_batch.hooks, run_.ready);
        return std::move(out_);
    }

private:
    std::int32_t module_of(std::string_view path) {
        const auto [found, is_new] = rows_.emplace(path, static_cast<std::int32_t>(out_.paths.size()));
        if (is_new) {
            out_.paths.emplace_back(path);
        }
        return found->second;
    }

    /// Modules with hooks and what is registered in and below them.
    void read_modules() {
        out_.modules.resize(out_.paths.size());
        const auto place = [&](std::string_view path, std::int32_t row) {
            const std::size_t dot = path.rfind('.');
            std::string_view owner = dot == std::string_view::npos ? "" : path.substr(0, dot);
            bool direct = true;
            while (true) {
                if (const auto found = rows_.find(owner); found != rows_.end()) {
                    zero::Module& module = out_.modules[static_cast<std::size_t>(found->second)];
                    module.below.push_back(row);
                    if (direct) {
                        module.parameters.push_back(row);
                    }
                }
                if (owner.empty()) {
                    return;
                }
                direct = false;
                const std::size_t end = owner.rfind('.');
                owner = end == std::string_view::npos ? "" : owner.substr(0, end);
            }
        };
        std::int32_t row = 0;
        for (const std::string& name : run_.table.names()) {
            place(name, row++);
        }
        if (const auto aliases = recording_.find("aliases")) {
            for (const json::Value alias : aliases->members()) {
                place(alias.key(), run_.table.row_of(alias));
            }
        }
        if (const auto leaves = recording_.find("leaf_modules")) {
            for (const json::Value leaf : leaves->elements()) {
                if (const auto found = rows_.find(leaf.string()); found != rows_.end()) {
                    out_.modules[static_cast<std::size_t>(found->second)].leaf = true;
                }
            }
        }
    }

    void read_hooks() {
        for (const json::Value row : recording_.at("hooks_last_iteration").elements()) {
            const std::string_view text = row.string();
            if (text.size() < 3 || (text[0] != '+' && text[0] != '-') || (text[1] != 'f' && text[1] != 'b')) {
                row.fail("a hook, such as \"+f layers.0\"");
            }
            out_.micro_batch.hooks.push_back(
                {.module = module_of(text.substr(3)), .enter = text[0] == '+', .backward = text[1] == 'b'});
        }
    }

    /// Tells the forwards that checkpoints repeat during backward from the backwards: the recorder writes
    /// both alike. A module that is entered more often than in forward is also recomputed. A repeated forward
    /// begins where a module is entered that does not lie within the one whose backward runs, and may break
    /// off before its modules end.
    void mark_recomputed() {
        struct Count {
            std::int64_t entries = 0;  // that belong to no backward
            std::int64_t exits = 0;
        };
        std::vector<zero::Hook>& hooks = out_.micro_batch.hooks;
        std::vector<Count> more(out_.paths.size());
        const auto count_of = [&](const zero::Hook& hook) -> Count& {
            return more[static_cast<std::size_t>(hook.module)];
        };
        for (const zero::Hook& hook : hooks) {
            if (hook.backward) {
                ++(hook.enter ? count_of(hook).entries : count_of(hook).exits);
            } else if (hook.enter) {
                --count_of(hook).entries;
                --count_of(hook).exits;
            }
        }
        std::vector<std::int32_t> backward;  // modules in their backward, outer ones first
        std::vector<std::int32_t> repeated;  // in a repeated forward
        bool recomputing = false;
        for (zero::Hook& hook : hooks) {
            if (!hook.backward) {
                continue;
            }
            const auto is_in = [&](const std::vector<std::int32_t>& modules) {
                return std::ranges::find(modules, hook.module) != modules.end();
            };
            if (hook.enter) {
                recomputing = count_of(hook).entries > 0 &&
                              (recomputing || is_in(backward) || !lies_within(hook.module, backward));
                hook.recompute = recomputing;
                count_of(hook).entries -= recomputing ? 1 : 0;
                (recomputing ? repeated : backward).push_back(hook.module);
            } else if (count_of(hook).exits > 0 && is_in(repeated)) {
                hook.recompute = true;
                --count_of(hook).exits;
                std::erase(repeated, hook.module);
            } else {
                std::erase(backward, hook.module);
            }
        }
    }

    bool lies_within(std::int32_t module, const std::vector<std::int32_t>& around) const {
        if (around.empty()) {
            return true;
        }
        const std::string& inner = out_.paths[static_cast<std::size_t>(module)];
        const std::string& outer = out_.paths[static_cast<std::size_t>(around.back())];
        return outer.empty() || inner.starts_with(outer + ".");
    }

    /// Gathers of the first forward that no hook has asked for: the module around reads a parameter of one
    /// that it is about to call, which then need not fetch it.
    void read_external() {
        const std::vector<zero::Hook>& hooks = out_.micro_batch.hooks;
        std::vector<json::Value> rows;
        const std::vector<json::Value> iterations = unfolded_iterations(recording_);
        if (iterations.empty()) {
            return;
        }
        for (const json::Value row : iterations.front().at("events").elements()) {
            if (row.at("p").string() == "fwd" && row.find("in")) {
                rows.push_back(row);
            }
        }
        std::vector<std::int32_t> around;
        auto row = rows.begin();
        for (std::size_t h = 0; h < hooks.size() && row != rows.end(); ++h) {
            const zero::Hook& hook = hooks[h];
            if (hook.backward) {
                break;
            }
            if (!hook.enter) {
                std::erase(around, hook.module);
                continue;
            }
            const std::string& path = out_.paths[static_cast<std::size_t>(hook.module)];
            const zero::Module& module = out_.modules[static_cast<std::size_t>(hook.module)];
            while (row != rows.end() && !row->find("u") && !around.empty()) {
                const std::int64_t part = row->at("in").integer();
                const auto read = std::ranges::find_if(module.parameters, [&](std::int32_t p) {
                    return ceil_div(run_.parameters[static_cast<std::size_t>(p)].numel, run_.options.ranks) ==
                           part;
                });
                if (read == module.parameters.end()) {
                    break;
                }
                out_.micro_batch.reads.push_back({.hook = h, .reader = around.back(), .parameter = *read});
                ++row;
            }
            while (row != rows.end() && row->find("u") && row->at("u").string() == path) {
                ++row;
            }
            around.push_back(hook.module);
        }
    }

    json::Value recording_;
    const ZeroCase& run_;
    std::map<std::string, std::int32_t, std::less<>> rows_;
    ZeroModules out_;
};

}  // namespace

ZeroModules zero_modules(const json::Value& recording, const ZeroCase& run) {
    return Reader(recording, run).read();
}

}  // namespace fsdplan
