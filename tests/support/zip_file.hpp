#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fsdplan::test {

inline std::string little_endian(std::uint64_t value, unsigned bytes) {
    std::string out;
    for (unsigned i = 0; i < bytes; ++i) {
        out += static_cast<char>(value >> (8 * i) & 0xffU);
    }
    return out;
}

/// A ZIP archive of members that are not compressed, without checksums, which fsdplan does not look at.
/// `zip64`: with the records of large archives, as torch.save always writes them at the end.
inline std::string zip_file(const std::vector<std::pair<std::string, std::string>>& members,
                            bool zip64 = false) {
    std::string out;
    std::string directory;
    for (const auto& [name, data] : members) {
        const std::string sizes = little_endian(data.size(), 4) + little_endian(data.size(), 4);
        const std::string extra = zip64 ? little_endian(1, 2) + little_endian(24, 2) +
                                              little_endian(data.size(), 8) + little_endian(data.size(), 8) +
                                              little_endian(out.size(), 8)
                                        : std::string();
        const std::string at = little_endian(out.size(), 4);
        const std::string elsewhere(4, '\xff');
        directory += "PK\1\2" + std::string(16, '\0') + (zip64 ? elsewhere + elsewhere : sizes) +
                     little_endian(name.size(), 2) + little_endian(extra.size(), 2) + std::string(10, '\0') +
                     (zip64 ? elsewhere : at) + name + extra;
        out += "PK\3\4" + std::string(14, '\0') + sizes + little_endian(name.size(), 2) +
               little_endian(0, 2) + name + data;
    }
    const std::size_t begin = out.size();
    out += directory;
    if (zip64) {
        const std::size_t record = out.size();
        out += "PK\6\6" + little_endian(44, 8) + std::string(12, '\0') + little_endian(members.size(), 8) +
               little_endian(members.size(), 8) + little_endian(directory.size(), 8) +
               little_endian(begin, 8);
        out += "PK\6\7" + std::string(4, '\0') + little_endian(record, 8) + little_endian(1, 4);
        return out + "PK\5\6" + std::string(4, '\0') + std::string(12, '\xff') + little_endian(0, 2);
    }
    return out + "PK\5\6" + std::string(4, '\0') + little_endian(members.size(), 2) +
           little_endian(members.size(), 2) + little_endian(directory.size(), 4) + little_endian(begin, 4) +
           little_endian(0, 2);
}

}  // namespace fsdplan::test
