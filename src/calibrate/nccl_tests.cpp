#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "fsdplan/calibrate.hpp"

// What nccl-tests print (common.cu of versions 2.0 to 2.17):
//   # nccl-tests version 2.17.0 nccl-headers=22707 nccl-library=22707
//   # Collective test starting: all_reduce_perf                     (since 2.14; before, only what the user
//   ran) #  Rank  0 Group  0 Pid  43 on  host1 device  0 [0x07] NVIDIA H100 #       size         count type
//   redop    root     time   algbw   busbw #wrong     time …
//           1024           256     float     sum      -1    16.43    0.06    0.11      0    16.41 …
namespace fsdplan {
namespace {

constexpr std::size_t columns_needed = 8;  // up to the bus bandwidth that is not in place
constexpr double largest_bytes = 1e15;
constexpr double shortest_us = 1e-3;
constexpr double longest_us = 1e12;
// Bandwidths are printed to 0.01 GB/s: those above tell 2(n-1)/n from (n-1)/n.
constexpr double telling_bandwidth = 2.0;
constexpr double rounding = 0.01;

struct Program {
    std::string_view name;
    CollectiveKind kind;
};
constexpr std::array<Program, 3> programs{{{"all_gather_perf", CollectiveKind::all_gather},
                                           {"reduce_scatter_perf", CollectiveKind::reduce_scatter},
                                           {"all_reduce_perf", CollectiveKind::all_reduce}}};

std::vector<std::string_view> words_of(std::string_view line) {
    std::vector<std::string_view> words;
    while (true) {
        const std::size_t begin = line.find_first_not_of(" \t\r");
        if (begin == std::string_view::npos) {
            return words;
        }
        line.remove_prefix(begin);
        const std::size_t size = std::min(line.find_first_of(" \t\r"), line.size());
        words.push_back(line.substr(0, size));
        line.remove_prefix(size);
    }
}

std::optional<double> number(std::string_view word) {
    double value = 0.0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    const bool whole = error == std::errc{} && end == word.data() + word.size();
    return whole && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

/// A run's rows and who took part in it.
class LogReader {
public:
    LogReader(std::string_view file, const LogOptions& options) : file_(file), options_(options) {}

    std::vector<CalibratedCurve> read(std::string_view log) {
        while (!log.empty() && faults_.size() < Error::most_faults) {
            const std::size_t size = std::min(log.find('\n'), log.size());
            ++line_;
            read_line(log.substr(0, size));
            log.remove_prefix(std::min(size + 1, log.size()));
        }
        if (faults_.empty() && curves_.empty()) {
            fault(std::string(file_),
                  "has no row of all_gather_perf, reduce_scatter_perf or all_reduce_perf");
        }
        if (!faults_.empty()) {
            throw Error(ErrorKind::input, std::move(faults_));
        }
        return finished();
    }

private:
    using Group = std::tuple<CollectiveKind, std::int64_t, std::int64_t>;

    void read_line(std::string_view line) {
        const std::vector<std::string_view> words = words_of(line);
        for (const Program& program : programs) {
            if (line.find(program.name) != std::string_view::npos) {
                kind_ = program.kind;
            }
        }
        if (words.empty()) {
            return;
        }
        if (words.front().starts_with('#')) {
            read_comment(words);
        } else if (words.size() >= 2 && is_count(words[0]) && is_count(words[1])) {
            read_row(words);
        }
    }

    static bool is_count(std::string_view word) {
        return std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; });
    }

    /// "# Rank 0 Group 0 Pid 43 on host1 device 0 …"; the list of a new run begins with rank 0.
    void read_comment(const std::vector<std::string_view>& words) {
        const auto rank = std::ranges::find(words, "Rank");
        const auto on = std::ranges::find(words, "on");
        if (rank == words.end() || on == words.end() || rank + 1 == words.end() || on + 1 == words.end()) {
            return;
        }
        if (*(rank + 1) == "0") {
            ranks_ = 0;
            hosts_.clear();
        }
        ++ranks_;
        hosts_.emplace(*(on + 1));
    }

    void read_row(const std::vector<std::string_view>& words) {
        const std::string where = std::string(file_) + ":" + std::to_string(line_);
        if (words.size() < columns_needed) {
            fault(where, "expected " + std::to_string(columns_needed) + " columns or more, found " +
                             std::to_string(words.size()));
            return;
        }
        const std::optional<double> bytes = number(words[0]);
        const std::optional<double> us = number(words[5]);
        const std::optional<double> algbw = number(words[6]);
        const std::optional<double> busbw = number(words[7]);
        if (!bytes || *bytes > largest_bytes) {
            fault(where, "expected a size in bytes, found \"" + std::string(words[0]) + '"');
        } else if (!us || *us < shortest_us || *us > longest_us) {
            fault(where, "expected a time in microseconds, found \"" + std::string(words[5]) + '"');
        } else if (!algbw || !busbw) {
            fault(where, "expected two bandwidths in GB/s, found \"" + std::string(words[6]) + "\" and \"" +
                             std::string(words[7]) + '"');
        } else if (words.size() > columns_needed && number(words[8]).value_or(0.0) != 0.0) {
            fault(where, "says that " + std::string(words[8]) + " values came out wrong");
        } else if (*bytes > 0.0) {  // below one element a rank nothing is sent
            add(where, *bytes, *us, *algbw, *busbw);
        }
    }

    void add(const std::string& where, double bytes, double us, double algbw, double busbw) {
        const std::optional<CollectiveKind> kind = options_.kind ? options_.kind : kind_;
        const std::int64_t ranks = options_.ranks.value_or(ranks_);
        if (!kind) {
            once(where, "nothing says which collective this is; add --collective");
            return;
        }
        if (ranks < 2 || ranks > most_gpus) {
            once(where, ranks == 0 ? "nothing says how many ranks took part; add --ranks"
                                   : "expected at least 2 ranks, found " + std::to_string(ranks));
            return;
        }
        const std::int64_t nodes =
            options_.nodes.value_or(std::max<std::int64_t>(1, static_cast<std::int64_t>(hosts_.size())));
        const double wires = static_cast<double>(ranks - 1) / static_cast<double>(ranks) *
                             (*kind == CollectiveKind::all_reduce ? 2.0 : 1.0);
        if (algbw >= telling_bandwidth && std::abs(busbw / algbw - wires) > rounding * wires) {
            once(where, "bus bandwidth is " + shown(busbw / algbw) + " times algorithm bandwidth; " +
                            std::string(name(*kind)) + " over " + std::to_string(ranks) + " ranks has " +
                            shown(wires));
            return;
        }
        curves_[{*kind, ranks, std::min(nodes, ranks)}][bytes].push_back(us);
    }

    static std::string shown(double ratio) {
        std::string text = std::to_string(std::round(100.0 * ratio) / 100.0);
        return text.substr(0, text.find('.') + 3);
    }

    void fault(std::string where, std::string message) {
        faults_.push_back({std::move(where), std::move(message)});
    }

    /// What is wrong with a whole run is said at its first row.
    void once(const std::string& where, const std::string& message) {
        if (said_.insert(message).second) {
            fault(where, message);
        }
    }

    std::vector<CalibratedCurve> finished() {
        std::vector<CalibratedCurve> out;
        for (auto& [group, sizes] : curves_) {
            CalibratedCurve curve{.kind = std::get<0>(group),
                                  .ranks = std::get<1>(group),
                                  .nodes = std::get<2>(group),
                                  .source = "nccl-tests"};
            for (auto& [bytes, us] : sizes) {
                curve.samples.push_back({.bytes = bytes, .us = std::move(us)});
            }
            if (curve.samples.size() < 2) {
                throw Error(
                    ErrorKind::input, std::string(file_),
                    std::string(name(curve.kind)) + " was measured at one size only; two make a curve");
            }
            out.push_back(std::move(curve));
        }
        return out;
    }

    std::string_view file_;
    const LogOptions& options_;
    std::int64_t line_ = 0;
    std::optional<CollectiveKind> kind_;
    std::int64_t ranks_ = 0;
    std::set<std::string, std::less<>> hosts_;
    std::map<Group, std::map<double, std::vector<double>>> curves_;
    std::vector<Fault> faults_;
    std::set<std::string> said_;
};

}  // namespace

std::vector<CalibratedCurve> read_nccl_tests(std::string_view log, std::string_view file,
                                             const LogOptions& options) {
    return LogReader(file, options).read(log);
}

}  // namespace fsdplan
