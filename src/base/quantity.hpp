#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fsdplan/base.hpp"

// Quantities as people write and read them.
namespace fsdplan {

/// "76GiB", "80 GB", "79.5gib", "512MiB", "1024B"; throws Error(input) at `where` for anything else, a
/// missing unit included. Rounded down to whole bytes.
Bytes parse_bytes(std::string_view text, std::string_view where);

/// "79.1 GiB", "512 MiB", "7.0 KiB", "12 B"; three digits or so.
std::string show_bytes(std::int64_t bytes);

/// "1.34 G", "218 M", "4.10 k", "266"
std::string show_numel(std::int64_t numel);

/// "1.10 s", "812 ms", "34.0 us"
std::string show_duration(std::int64_t ns);

/// Digits in groups of three: "8,030,261,248".
std::string show_integer(std::int64_t value);

}  // namespace fsdplan
