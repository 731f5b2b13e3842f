#include "planner/code_words.hpp"

#include <algorithm>
#include <charconv>

namespace fsdplan {
namespace {

/// A path with its first number as "{i}", and that number: "model.layers.{i}.mlp", 7.
std::pair<std::string, std::optional<std::int64_t>> numbered(const std::string& path) {
    for (std::size_t begin = 0; begin < path.size();) {
        const std::size_t end = std::min(path.find('.', begin), path.size());
        std::int64_t number = 0;
        const auto [rest, error] = std::from_chars(path.data() + begin, path.data() + end, number);
        if (error == std::errc{} && rest == path.data() + end) {
            return {path.substr(0, begin) + "{i}" + path.substr(end), number};
        }
        begin = end + 1;
    }
    return {path, std::nullopt};
}

/// "*(f"model.layers.{i}" for i in range(…))" where the numbers are one step apart, else with all of them.
std::string numbered_line(const std::string& pattern, std::span<const std::int64_t> numbers) {
    const std::string each = "*(f\"" + pattern + "\" for i in ";
    const auto count = static_cast<std::int64_t>(numbers.size());
    const std::int64_t first = numbers.front();
    const std::int64_t last = numbers.back();
    if (count > 1 && last - first == count - 1) {
        const std::string from = first == 0 ? "" : std::to_string(first) + ", ";
        return each + "range(" + from + std::to_string(last + 1) + "))";
    }
    if (count > 1 && first - last == count - 1) {
        return each + "range(" + std::to_string(first) + ", " + std::to_string(last - 1) + ", -1))";
    }
    std::string list;
    for (const std::int64_t n : numbers) {
        list += std::to_string(n) + ", ";
    }
    return each + "(" + list + "))";
}

/// Whether `next` follows numbers that count up or down.
bool goes_on(std::span<const std::int64_t> numbers, std::int64_t next) {
    const std::int64_t step = next - numbers.back();
    const std::int64_t usual = numbers.size() > 1 ? numbers[1] - numbers[0] : step;
    return step == usual && (step == 1 || step == -1);
}

struct Line {
    std::string path;  // the first one
    std::string pattern;
    std::vector<std::int64_t> numbers;
    std::int64_t depth = 0;

    std::string text() const {
        return numbers.size() > 1 ? numbered_line(pattern, numbers) : quoted_names({&path, 1});
    }
};

}  // namespace

std::int64_t readable_number(std::int64_t low, std::optional<std::int64_t> high) {
    const std::int64_t top = high.value_or(largest_total);
    if (low == 0 && top == 0) {
        return 0;
    }
    std::int64_t step = 1;
    while (step <= top / 10) {
        step *= 10;
    }
    for (; step > 1; step /= 10) {
        const std::int64_t candidate = std::max(step, round_up(low, step));
        if (candidate <= top) {
            return candidate;
        }
    }
    return std::max<std::int64_t>(low, low == 0 ? 1 : low);
}

std::string with_underscores(std::int64_t value) {
    const std::string digits = std::to_string(value);
    std::string out;
    for (std::size_t i = 0; i < digits.size(); ++i) {
        out += i > 0 && (digits.size() - i) % 3 == 0 ? "_" : "";
        out += digits[i];
    }
    return out;
}

Import import_of(const std::string& class_name) {
    const std::size_t dot = class_name.rfind('.');
    const std::string word = class_name.substr(dot == std::string::npos ? 0 : dot + 1);
    if (dot == std::string::npos || class_name.starts_with("__main__")) {
        return {"", word};
    }
    return {"from " + class_name.substr(0, dot) + " import " + word + "\n", word};
}

std::string with_imports(std::string imports, std::string_view more) {
    while (!more.empty()) {
        const std::string_view line = more.substr(0, more.find('\n') + 1);
        if (imports.find(line) == std::string::npos) {
            imports += line;
        }
        more.remove_prefix(line.size());
    }
    return imports;
}

std::string class_tuple(std::span<const std::string> classes, std::string& imports) {
    std::string tuple;
    for (const std::string& name : classes) {
        const Import import = import_of(name);
        if (imports.find(import.line) == std::string::npos) {
            imports += import.line;
        }
        tuple += import.word + ", ";
    }
    return tuple;
}

std::vector<std::string> name_lines(std::vector<std::string> paths) {
    std::ranges::sort(paths);
    std::vector<Line> lines;
    for (const std::string& path : paths) {
        const auto [pattern, number] = numbered(path);
        auto line = std::ranges::find(lines, pattern, &Line::pattern);
        if (line == lines.end()) {
            lines.push_back({path, pattern, {}, std::ranges::count(pattern, '.')});
            line = lines.end() - 1;
        }
        if (number) {
            line->numbers.push_back(*number);
        }
    }
    std::ranges::stable_sort(lines, std::greater<>{}, &Line::depth);
    std::vector<std::string> text;
    for (Line& line : lines) {
        std::ranges::sort(line.numbers);
        text.push_back(line.text());
    }
    return text;
}

std::vector<std::string> ordered_name_lines(std::span<const std::string> paths) {
    std::vector<Line> lines;
    for (const std::string& path : paths) {
        const auto [pattern, number] = numbered(path);
        if (number && !lines.empty() && lines.back().pattern == pattern &&
            goes_on(lines.back().numbers, *number)) {
            lines.back().numbers.push_back(*number);
        } else {
            lines.push_back({path, pattern, number ? std::vector{*number} : std::vector<std::int64_t>{}});
        }
    }
    std::vector<std::string> text;
    std::ranges::transform(lines, std::back_inserter(text), &Line::text);
    return text;
}

std::string tuple_of(std::span<const std::string> lines, std::string_view indent) {
    std::string out = "(\n";
    for (const std::string& line : lines) {
        out += std::string(indent) + "    " + line + ",\n";
    }
    return out + std::string(indent) + ")";
}

std::string quoted_names(std::span<const std::string> paths) {
    std::string out;
    for (const std::string& path : paths) {
        out += (out.empty() ? "\"" : ", \"") + path + '"';
    }
    return out;
}

std::string precision_arguments(const TrainingJob& job, bool with_buffers) {
    std::string arguments;
    const auto add = [&](std::string_view key, const std::optional<DType>& dtype) {
        if (dtype) {
            arguments +=
                (arguments.empty() ? "" : ", ") + std::string(key) + "=torch." + std::string(name(*dtype));
        }
    };
    add("param_dtype", job.param_dtype);
    add("reduce_dtype", job.reduce_dtype);
    if (with_buffers) {
        add("buffer_dtype", job.buffer_dtype);
    }
    return arguments;
}

std::string mesh_lines(const TrainingJob& job) {
    if (!is_hybrid(job.strategy)) {
        return "";
    }
    return "mesh = init_device_mesh(\"cuda\", (" + std::to_string(job.mesh.replicate) + ", " +
           std::to_string(job.mesh.shard) + "), mesh_dim_names=(\"replicate\", \"shard\"))\n";
}

}  // namespace fsdplan
