#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>

#include "fsdplan/allocator.hpp"

// PYTORCH_ALLOC_CONF is key:value,key:value with lists in brackets. Blanks do not count anywhere, a comma at
// the end is fine, and of a key given twice the last value holds.
namespace fsdplan {
namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20U;
constexpr std::int64_t own_size_limit_mb = 10;  // requests from here on get segments of their own size
constexpr std::int64_t most_mb = CachingAllocator::most_memory.count / mib;

class Reader {
public:
    Reader(std::string_view text, std::string_view where) : where_(where) {
        constexpr std::string_view marks = ",:[]";
        bool word = false;
        for (const char c : text) {
            if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
                continue;
            }
            const bool mark = marks.find(c) != std::string_view::npos;
            if (mark || !word) {
                tokens_.emplace_back();
            }
            tokens_.back() += c;
            word = !mark;
        }
    }

    bool done() const { return next_ == tokens_.size(); }
    bool at(std::string_view token) const { return !done() && tokens_[next_] == token; }
    bool take(std::string_view token) {
        const bool is = at(token);
        next_ += is ? 1U : 0U;
        return is;
    }
    void expect(std::string_view token, std::string_view after) {
        if (!take(token)) {
            fail("expected \"" + std::string(token) + "\" after \"" + std::string(after) + "\", found " +
                 found());
        }
    }
    std::string word(std::string_view what) {
        if (done() || std::string_view(",:[]").find(tokens_[next_]) != std::string_view::npos) {
            fail("expected " + std::string(what) + ", found " + found());
        }
        return tokens_[next_++];
    }

    bool truth(std::string_view key) {
        const std::string text = word("True or False");
        if (text != "True" && text != "False") {
            fail(std::string(key) + ": expected True or False, found \"" + text + "\"");
        }
        return text == "True";
    }
    /// Values too large for any device count as the largest.
    std::int64_t whole(std::string_view key) {
        const std::string text = word("a number");
        std::int64_t value = 0;
        const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool digits = text.front() != '-' && end == text.data() + text.size();
        if (!digits || (status != std::errc{} && status != std::errc::result_out_of_range)) {
            fail(std::string(key) + ": expected a whole number, found \"" + text + "\"");
        }
        return status == std::errc{} ? value : std::numeric_limits<std::int64_t>::max();
    }
    double real(std::string_view key) {
        const std::string text = word("a number");
        double value = 0.0;
        const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (status != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) {
            fail(std::string(key) + ": expected a number, found \"" + text + "\"");
        }
        return value;
    }
    std::int64_t megabytes(std::string_view key) { return std::min(whole(key), most_mb); }

    [[noreturn]] void fail(std::string message) const {
        throw Error(ErrorKind::input, std::string(where_), std::move(message));
    }

private:
    std::string found() const { return done() ? "the end" : "\"" + tokens_[next_] + "\""; }

    std::string where_;
    std::vector<std::string> tokens_;
    std::size_t next_ = 0;
};

bool is_power_of_two(std::int64_t n) {
    return n > 0 && (n & (n - 1)) == 0;
}

int log2_of(std::int64_t power) {
    int out = 0;
    while (power > 1) {
        power >>= 1U;
        ++out;
    }
    return out;
}

using Divisions = std::array<std::int64_t, 16>;

// [256:1,512:2,>:4]: the first entry also stands for everything smaller, ">" for everything above the entry
// before.
Divisions read_division_list(Reader& reader, std::string_view key) {
    Divisions out{};
    std::optional<std::size_t> before;
    while (!reader.take("]")) {
        const bool rest = reader.take(">");
        const std::int64_t megabytes = rest ? 1 : reader.whole(key);
        if (!is_power_of_two(megabytes)) {
            reader.fail(std::string(key) + ": sizes have to be powers of 2, found " +
                        std::to_string(megabytes));
        }
        reader.expect(":", key);
        const std::int64_t divisions = reader.whole(key);
        if (divisions != 0 && !is_power_of_two(divisions)) {
            reader.fail(std::string(key) + ": divisions have to be a power of 2, or 0 for none, found " +
                        std::to_string(divisions));
        }
        if (rest) {
            std::fill(out.begin() + (before ? static_cast<std::ptrdiff_t>(*before) + 1 : 0), out.end(),
                      divisions);
        } else {
            const std::size_t index = std::min(static_cast<std::size_t>(log2_of(megabytes)), out.size() - 1);
            const std::size_t first = before ? index : 0;
            std::fill(out.begin() + static_cast<std::ptrdiff_t>(first),
                      out.begin() + static_cast<std::ptrdiff_t>(index) + 1, divisions);
            before = index;
        }
        if (!reader.at("]")) {
            reader.expect(",", key);
        }
    }
    return out;
}

Divisions read_divisions(Reader& reader, std::string_view key) {
    if (reader.take("[")) {
        return read_division_list(reader, key);
    }
    const std::int64_t divisions = reader.whole(key);
    if (!is_power_of_two(divisions)) {
        reader.fail(std::string(key) + ": divisions have to be a power of 2, found " +
                    std::to_string(divisions));
    }
    Divisions out{};
    out.fill(divisions);
    return out;
}

double read_fraction(Reader& reader, std::string_view key) {
    const double fraction = reader.real(key);
    if (fraction < 0.0 || fraction > 1.0) {
        reader.fail(std::string(key) + " has to be from 0 to 1");
    }
    return fraction;
}

double read_threshold(Reader& reader, std::string_view key) {
    const double threshold = reader.real(key);
    if (threshold <= 0.0 || threshold >= 1.0) {
        reader.fail(std::string(key) + " has to be between 0 and 1");
    }
    return threshold;
}

// Host memory, locks and graph capture: nothing that moves device memory.
bool skip_other_key(Reader& reader, std::string_view key) {
    constexpr std::array<std::string_view, 6> truths{
        "pinned_use_background_threads", "pinned_use_cuda_host_register",
        "pinned_use_hip_host_register",  "release_lock_on_cudamalloc",
        "release_lock_on_hipmalloc",     "graph_capture_record_stream_reuse"};
    constexpr std::array<std::string_view, 2> numbers{"pinned_num_register_threads",
                                                      "pinned_reserve_segment_size_mb"};
    if (std::ranges::find(truths, key) != truths.end()) {
        reader.truth(key);
        return true;
    }
    if (std::ranges::find(numbers, key) == numbers.end()) {
        return false;
    }
    const std::int64_t value = reader.whole(key);
    if (key == numbers[0] && (!is_power_of_two(value) || value > 128)) {
        reader.fail(std::string(key) + ": expected a power of 2 up to 128, found " + std::to_string(value));
    }
    if (value == 0) {
        reader.fail(std::string(key) + " has to be positive");
    }
    return true;
}

std::string suggestion(std::string_view key) {
    const std::vector<std::string> keys{"backend",
                                        "expandable_segments",
                                        "garbage_collection_threshold",
                                        "graph_capture_record_stream_reuse",
                                        "large_segment_size_mb",
                                        "max_non_split_rounding_mb",
                                        "max_split_size_mb",
                                        "per_process_memory_fraction",
                                        "pinned_num_register_threads",
                                        "pinned_reserve_segment_size_mb",
                                        "pinned_use_background_threads",
                                        "pinned_use_cuda_host_register",
                                        "release_lock_on_cudamalloc",
                                        "roundup_power2_divisions",
                                        "throw_on_cudamalloc_oom"};
    return did_you_mean(key, keys);
}

void read_value(Reader& reader, const std::string& key, AllocatorOptions& out) {
    if (key == "expandable_segments") {
        out.expandable_segments = reader.truth(key);
    } else if (key == "throw_on_cudamalloc_oom") {
        out.throw_on_cudamalloc_oom = reader.truth(key);
    } else if (key == "large_segment_size_mb") {
        const std::int64_t megabytes = reader.megabytes(key);
        if (megabytes <= own_size_limit_mb) {
            reader.fail(key + " has to be more than " + std::to_string(own_size_limit_mb) + ", found " +
                        std::to_string(megabytes));
        }
        out.large_segment_bytes = megabytes * mib;
    } else if (key == "max_split_size_mb") {
        out.max_split_bytes = reader.megabytes(key) * mib;
    } else if (key == "max_non_split_rounding_mb") {
        out.max_non_split_rounding_bytes = reader.megabytes(key) * mib;
    } else if (key == "garbage_collection_threshold") {
        out.garbage_collection_threshold = read_threshold(reader, key);
    } else if (key == "roundup_power2_divisions") {
        out.roundup_power2_divisions = read_divisions(reader, key);
    } else if (key == "per_process_memory_fraction") {
        out.per_process_memory_fraction = read_fraction(reader, key);
    } else if (key == "backend") {
        const std::string backend = reader.word("a backend");
        if (backend != "native") {
            reader.fail("backend: only native is modelled, found \"" + backend + "\"");
        }
    } else if (!skip_other_key(reader, key)) {
        reader.fail("unknown key \"" + key + "\"" + suggestion(key));
    }
}

// Against the size of large segments, which may be given later in the text.
void check_split_limits(const Reader& reader, const AllocatorOptions& options, bool rounding_given) {
    const auto check = [&](std::string_view key, std::int64_t bytes) {
        if (bytes < options.large_segment_bytes) {
            reader.fail(std::string(key) + " has to be at least the size of large segments, " +
                        std::to_string(options.large_segment_bytes / mib) + ", found " +
                        std::to_string(bytes / mib));
        }
    };
    check("max_split_size_mb", options.max_split_bytes);
    if (rounding_given) {
        check("max_non_split_rounding_mb", options.max_non_split_rounding_bytes);
    }
}

}  // namespace

AllocatorOptions parse_alloc_conf(std::string_view text, std::string_view where) {
    AllocatorOptions out;
    Reader reader(text, where);
    bool rounding_given = false;
    while (!reader.done()) {
        const std::string key = reader.word("a key");
        rounding_given = rounding_given || key == "max_non_split_rounding_mb";
        reader.expect(":", key);
        read_value(reader, key, out);
        if (!reader.done()) {
            reader.expect(",", key);
        }
    }
    check_split_limits(reader, out, rounding_given);
    return out;
}

}  // namespace fsdplan
