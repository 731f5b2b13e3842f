#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/pickle.hpp"
#include "checkpoint/stored/optimizer_keys.hpp"

// .metadata of torch.distributed.checkpoint: which tensors and values there are, and where.
namespace fsdplan {

/// A record of storage_data: where one item is.
struct DcpItem {
    std::string_view tensor;           ///< or the name of another value
    std::vector<std::int64_t> offset;  ///< of the chunk
    bool is_chunk = false;             ///< false: no tensor
    std::string_view file;
    std::int64_t position = 0;
    std::int64_t bytes = 0;
    std::size_t byte = 0;  ///< of .metadata
};

/// A tensor without places: its chunks have offset and shape only.
struct DcpTensor {
    SavedTensor tensor;
    std::size_t byte = 0;  ///< of .metadata
};

struct DcpMetadata {
    std::vector<DcpTensor> tensors;
    std::vector<std::string_view> other_values;
    std::vector<DcpItem> items;
    std::vector<KeyPath> paths;       ///< of the tensors, then of the other values
    std::deque<std::string> numbers;  ///< keys of `paths` that are integers, as text
    std::string version;              ///< empty before PyTorch 2.5
    std::vector<std::string> unread;  ///< names of entries of an unknown kind
};

/// The result refers to the document. Throws Error(input) with the byte for what is no such metadata, for
/// equal names and for chunks that do not tile their tensor.
DcpMetadata read_dcp_metadata(const pickle::Document& document);

}  // namespace fsdplan
