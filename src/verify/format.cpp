#include "verify/format.hpp"

namespace fsdplan {

bool has_format(std::string_view head, std::string_view format) {
    const std::size_t key = head.find("\"format\"");
    if (key == std::string_view::npos) {
        return false;
    }
    const std::size_t colon = head.find_first_not_of(" \t\r\n", key + 8);
    if (colon == std::string_view::npos || head[colon] != ':') {
        return false;
    }
    const std::size_t value = head.find_first_not_of(" \t\r\n", colon + 1);
    return value != std::string_view::npos &&
           head.substr(value).starts_with("\"" + std::string(format) + "\"");
}

void require_version(const json::Value& recording, std::string_view key) {
    const json::Value version = recording.at(key);
    if (version.integer() != 1) {
        version.fail(std::string(key) + " 1");
    }
}

}  // namespace fsdplan
