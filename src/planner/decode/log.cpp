#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "planner/decode/decode.hpp"

// Lines of PyTorch's ProcessGroupNCCL and ProcessGroupWrapper. Their wording changes from version to version,
// so that only what carries a value is looked for:
//   [rank0]:[E…] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=…, OpType=…,
//   NumelIn=…, [rank0]:[E…] [PG ID 0 PG GUID 0(default_pg) Rank 0] … at work: 7, last enqueued NCCL work: 9,
//   … … Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=…, OpType=…, TensorShape=[…], …
namespace fsdplan {
namespace {

// What c10d prints for a size that it did not record: size_t(-1).
constexpr std::uint64_t unrecorded = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t longest_shown = 40;
// No line that the watchdog writes is longer, and nothing that belongs to a collective stands further before
// it.
constexpr std::size_t longest_line = std::size_t{1} << 16U;
constexpr std::size_t longest_head = 1024;

bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// Up to the next comma, bracket or space.
std::string_view token_at(std::string_view text) {
    return text.substr(0, std::min(text.find_first_of(",)]} \t\r"), text.size()));
}

std::string_view behind(std::string_view text, std::string_view what) {
    const std::size_t found = text.find(what);
    return found == std::string_view::npos ? std::string_view() : text.substr(found + what.size());
}

/// The number at the front, if there is one that fits.
std::optional<std::int64_t> number_at(std::string_view text) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc{} && value >= 0 ? std::optional(value) : std::nullopt;
}

/// The number behind the colon that follows: "last enqueued NCCL work: 7755".
std::optional<std::int64_t> number_behind(std::string_view line, std::string_view what) {
    std::string_view rest = behind(behind(line, what), ":");
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    return number_at(rest);
}

/// The last "Rank 3" of a text.
std::optional<std::int64_t> last_rank(std::string_view text) {
    constexpr std::string_view word = "Rank ";
    const std::size_t found = text.rfind(word);
    return found == std::string_view::npos ? std::nullopt : number_at(text.substr(found + word.size()));
}

/// What a rank says about a process group.
struct Progress {
    std::string group;
    std::optional<std::int64_t> last_enqueued;
    std::optional<std::int64_t> last_completed;
};

class LogReader {
public:
    LogReader(std::string_view text, const std::string& where) : text_(text), where_(where) {}

    std::vector<ObservedCollective> read() {
        while (!text_.empty() && faults_.size() < Error::most_faults) {
            const std::size_t size = std::min(text_.find('\n'), text_.size());
            line_ = text_.substr(0, std::min(size, longest_line));
            ++line_number_;
            text_.remove_prefix(std::min(size + 1, text_.size()));
            read_collectives();
            read_progress();
        }
        if (!faults_.empty()) {
            throw Error(ErrorKind::input, std::move(faults_));
        }
        for (ObservedCollective& seen : found_) {
            add_progress(seen);
        }
        return std::move(found_);
    }

private:
    using Number = std::optional<std::int64_t>;

    void read_collectives() {
        constexpr std::string_view mark = "OpType=";
        for (std::size_t at = line_.find(mark); at != std::string_view::npos;) {
            const std::size_t next = line_.find(mark, at + mark.size());
            const std::size_t head = at - std::min(at, longest_head);
            const std::size_t open = head + std::min(line_.substr(head, at - head).rfind('('), at - head);
            add(line_.substr(head, open - head), line_.substr(open, std::min(next, line_.size()) - open));
            at = next;
        }
    }

    /// `fields` is "(SeqNum=7, OpType=_ALLGATHER_BASE, …"; `before` says whose they are.
    void add(std::string_view before, std::string_view fields) {
        ObservedCollective seen;
        const std::string_view op = token_at(behind(fields, "OpType="));
        if (op.empty() || !std::ranges::all_of(op, is_word)) {
            fault("OpType", op, "the name of an operation");
            return;
        }
        seen.op = op;
        seen.kind = collective_kind(op);
        const bool fingerprint = before.ends_with("CollectiveFingerPrint");
        seen.rank = fingerprint ? last_rank(before) : rank_of(before);
        seen.sequence = number(fields, fingerprint ? "SequenceNumber=" : "SeqNum=");
        seen.input_numel = fingerprint ? shape(fields) : size(fields, "NumelIn=");
        seen.output_numel = size(fields, "NumelOut=");
        // The watchdog says the same again when it ends the process.
        if (known_.emplace(seen.rank, seen.sequence, seen.op, seen.input_numel, seen.output_numel).second) {
            found_.push_back(std::move(seen));
        }
    }

    /// The rank in the job: the launcher's prefix has it, the brackets behind it that in the process group.
    static std::optional<std::int64_t> rank_of(std::string_view before) {
        const std::optional<std::int64_t> global = number_at(behind(before, "[rank"));
        return global ? global : last_rank(before);
    }

    void read_progress() {
        Progress progress{.last_enqueued = number_behind(line_, "last enqueued"),
                          .last_completed = number_behind(line_, "last completed")};
        const std::optional<std::int64_t> sequence = number_behind(line_, "at work");
        if (progress.last_enqueued && sequence) {
            const std::string_view head = line_.substr(0, line_.find("] ", line_.find("[PG")));
            progress.group = group_in(head);
            progress_[{rank_of(head), *sequence}] = std::move(progress);
        }
    }

    /// "0 (default_pg)" of "… [PG ID 0 PG GUID 0(default_pg) Rank 1", "1" of "… [PG 1 Rank 1".
    static std::string group_in(std::string_view head) {
        std::string_view words = behind(head, "[PG ");
        words = words.substr(0, words.rfind(" Rank "));
        if (words.starts_with("ID ")) {
            words.remove_prefix(3);
        }
        std::string group(words.substr(0, words.find_first_not_of("0123456789")));
        const std::string_view name = behind(words, "(");
        const std::string_view inside = name.substr(0, std::min(name.find(')'), name.size()));
        if (!inside.empty() && std::ranges::all_of(inside, is_word)) {
            group += " (" + std::string(inside) + ")";
        }
        return group;
    }

    void add_progress(ObservedCollective& seen) const {
        const auto progress = progress_.find({seen.rank, seen.sequence.value_or(-1)});
        if (progress != progress_.end()) {
            seen.group = progress->second.group;
            seen.last_enqueued = progress->second.last_enqueued;
            seen.last_completed = progress->second.last_completed;
        }
    }

    std::optional<std::int64_t> number(std::string_view fields, std::string_view key) {
        const std::string_view token = token_at(behind(fields, key));
        const std::optional<std::int64_t> value = number_at(token);
        if (!token.empty() && !value) {
            fault(key.substr(0, key.size() - 1), token, "a number from 0 to 2^63 - 1");
        }
        return value;
    }

    std::optional<std::int64_t> size(std::string_view fields, std::string_view key) {
        const std::string_view token = token_at(behind(fields, key));
        std::uint64_t value = 0;
        const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
        if (token.empty() || (error == std::errc{} && value == unrecorded)) {
            return std::nullopt;
        }
        const bool whole = error == std::errc{} && end == token.data() + token.size();
        if (!whole || value > static_cast<std::uint64_t>(largest_total)) {
            fault(key.substr(0, key.size() - 1), token, "a number of elements, at most 2^53");
            return std::nullopt;
        }
        return static_cast<std::int64_t>(value);
    }

    /// Elements of the first tensor: "TensorShape=[20, 10]".
    std::optional<std::int64_t> shape(std::string_view fields) {
        std::string_view sizes = behind(fields, "TensorShape=[");
        if (sizes.empty()) {
            return std::nullopt;
        }
        std::int64_t numel = 1;
        for (sizes = sizes.substr(0, sizes.find(']')); !sizes.empty();) {
            const std::string_view token = token_at(sizes);
            const std::optional<std::int64_t> extent = number_at(token);
            if (!extent) {
                fault("TensorShape", token, "sizes such as [20, 10]");
                return std::nullopt;
            }
            numel = checked_mul(numel, *extent, place());
            sizes.remove_prefix(token.size());
            sizes.remove_prefix(std::min(sizes.find_first_not_of(", "), sizes.size()));
        }
        return numel;
    }

    std::string place() const { return where_ + ":" + std::to_string(line_number_); }

    void fault(std::string_view key, std::string_view found, std::string_view expected) {
        std::string shown(found.substr(0, longest_shown));
        std::ranges::replace_if(
            shown, [](char c) { return c < ' ' || c > '~'; }, '?');
        faults_.push_back(
            {place(), std::string(key) + ": expected " + std::string(expected) + ", found \"" + shown + '"'});
    }

    std::string_view text_;
    const std::string& where_;
    std::string_view line_;
    std::int64_t line_number_ = 0;
    std::vector<ObservedCollective> found_;
    std::set<std::tuple<Number, Number, std::string, Number, Number>> known_;
    std::map<std::pair<Number, std::int64_t>, Progress> progress_;  // by rank and sequence number
    std::vector<Fault> faults_;
};

}  // namespace

std::vector<ObservedCollective> collectives_in_log(std::string_view text, const std::string& where) {
    return LogReader(text, where).read();
}

}  // namespace fsdplan
