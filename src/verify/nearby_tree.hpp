#pragma once

#include <string>
#include <string_view>

namespace fsdplan {

/// A file that a recording names by a relative path: looked up under that path and under its last part, in
/// the recording's folder, then in the folders above. Also with ".gz". Empty when it is nowhere.
std::string find_nearby(const std::string& recording, std::string_view relative);

}  // namespace fsdplan
