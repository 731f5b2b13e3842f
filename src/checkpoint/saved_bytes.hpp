#pragma once

#include <cstdint>
#include <span>

// Sizes of what torch.save() writes: a ZIP archive whose payloads begin at multiples of 64 bytes.
namespace fsdplan {

/// An archive of something that is no tensor, given the size of its pickle (1: any small one).
std::int64_t saved_object_bytes(std::int64_t pickle_bytes);

/// Pickle, protocol 2, of a list of distinct strings of these lengths.
std::int64_t pickled_list_bytes(std::span<const std::int64_t> lengths);

}  // namespace fsdplan
