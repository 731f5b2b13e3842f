#pragma once

#include <cstdint>
#include <string_view>

namespace fsdplan {

/// An archive of torch.save as it grows, without its bytes (torch 2.13, PyTorchStreamWriter): data at
/// multiples of 64, a descriptor after each member that is not empty, the directory with ZIP64 records at the
/// end.
class TorchArchive {
public:
    /// Byte at which the member's data begin.
    std::int64_t add(std::string_view name, std::int64_t bytes);
    /// Of the file, with these members.
    std::int64_t bytes() const;

private:
    std::int64_t end_ = 0;
    std::int64_t directory_ = 0;
};

}  // namespace fsdplan
