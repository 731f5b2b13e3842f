#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "fsdplan/base.hpp"
#include "fsdplan/diff.hpp"

// Two results, or two settings files, of any bytes on both sides of the first zero.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const std::string_view before = text.substr(0, text.find('\0'));
    const std::string_view after = text.substr(std::min(before.size() + 1, size));
    try {
        const bool results = fsdplan::diff_input(before, "before") == fsdplan::DiffInput::result;
        const fsdplan::Diff diff = results
                                       ? fsdplan::diff_results(before, "before", after, "after")
                                       : fsdplan::diff_settings(fsdplan::settings_in_json(before, "before"),
                                                                fsdplan::settings_in_json(after, "after"));
        fsdplan::text_report(diff);
        fsdplan::json_report(diff, "before", "after", "0");
    } catch (const fsdplan::Error&) {
    }
    return 0;
}
