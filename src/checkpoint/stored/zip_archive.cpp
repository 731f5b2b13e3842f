#include "checkpoint/stored/zip_archive.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <set>
#include <string_view>

#include "base/file.hpp"

namespace fsdplan {
namespace {

constexpr std::int64_t largest_directory = std::int64_t{1} << 28U;
constexpr std::int64_t largest_comment = std::numeric_limits<std::uint16_t>::max();

// Sizes of the fixed parts of the records (APPNOTE.TXT 6.3.10, sections 4.3.7 to 4.3.16).
constexpr std::int64_t end_bytes = 22;
constexpr std::int64_t locator_bytes = 20;
constexpr std::int64_t end64_bytes = 56;
constexpr std::int64_t entry_bytes = 46;
constexpr std::int64_t local_bytes = 30;
// What a field of 16 or 32 bits holds when the ZIP64 record has the value.
constexpr std::int64_t elsewhere16 = 0xffff;
constexpr std::int64_t elsewhere32 = 0xffffffff;

/// Little-endian fields of one record.
class Record {
public:
    explicit Record(std::string_view bytes) : bytes_(bytes) {}

    std::int64_t u16(std::size_t at) const { return static_cast<std::int64_t>(number(at, 2)); }
    std::int64_t u32(std::size_t at) const { return static_cast<std::int64_t>(number(at, 4)); }
    std::uint64_t u64(std::size_t at) const { return number(at, 8); }

private:
    std::uint64_t number(std::size_t at, std::size_t size) const {
        std::uint64_t value = 0;
        for (std::size_t i = size; i > 0; --i) {
            value = value << 8U | static_cast<unsigned char>(bytes_[at + i - 1]);
        }
        return value;
    }

    std::string_view bytes_;
};

struct Directory {
    std::int64_t begin = 0;  // as all positions here, from where the archive begins
    std::int64_t bytes = 0;
    std::uint64_t entries = 0;
};

/// What the directory says of one member.
struct Entry {
    std::string name;
    std::int64_t bytes = 0;
    std::int64_t header = 0;
};

class Reader {
public:
    Reader(const std::filesystem::path& path, const std::string& shown, FileRange range)
        : stream_(path, std::ios::binary), shown_(shown), range_(range) {}

    std::vector<ZipMember> members() {
        const Directory directory = find_directory();
        std::vector<ZipMember> out;
        for (const Entry& entry : entries(directory)) {
            out.push_back(member(entry, directory.begin));
        }
        refuse_overlap(out);
        return out;
    }

private:
    [[noreturn]] void fail(std::int64_t at, const std::string& message) const {
        throw Error(ErrorKind::input, shown_ + " at byte " + std::to_string(range_.begin + at), message);
    }

    std::string read(std::int64_t at, std::int64_t size) {
        std::string out(static_cast<std::size_t>(size), '\0');
        stream_.clear();
        stream_.seekg(range_.begin + at);
        stream_.read(out.data(), size);
        if (stream_.gcount() != size) {
            fail(at, "the file ends within " + std::to_string(size) + " bytes; is it cut off?");
        }
        return out;
    }

    /// A position or size that has to lie within the archive.
    std::int64_t within(std::uint64_t value, std::int64_t at, std::string_view what) const {
        if (value > static_cast<std::uint64_t>(range_.bytes)) {
            fail(at, std::string(what) + " " + std::to_string(value) + " of a ZIP archive of " +
                         std::to_string(range_.bytes) + " bytes");
        }
        return static_cast<std::int64_t>(value);
    }

    Directory find_directory() {
        const std::int64_t tail_bytes = std::min(range_.bytes, end_bytes + largest_comment);
        const std::int64_t tail_at = range_.bytes - tail_bytes;
        const std::string tail = read(tail_at, tail_bytes);
        std::size_t found = tail.rfind("PK\5\6");
        while (found != std::string::npos) {
            const Record end(std::string_view(tail).substr(found));
            const auto left = tail_bytes - static_cast<std::int64_t>(found);
            if (left >= end_bytes && left - end_bytes == end.u16(20)) {
                return directory_of(end, tail_at + static_cast<std::int64_t>(found));
            }
            found = found == 0 ? std::string::npos : tail.rfind("PK\5\6", found - 1);
        }
        fail(0, "a ZIP archive without its directory at the end; is it cut off?");
    }

    Directory directory_of(const Record& end, std::int64_t at) {
        const bool is_zip64 =
            end.u16(10) == elsewhere16 || end.u32(12) == elsewhere32 || end.u32(16) == elsewhere32;
        if (is_zip64) {
            return directory_of_zip64(at);
        }
        if (end.u16(4) != 0 || end.u16(6) != 0) {
            fail(at, "is one of several disks");
        }
        return checked({.begin = within(static_cast<std::uint64_t>(end.u32(16)), at, "directory at byte"),
                        .bytes = within(static_cast<std::uint64_t>(end.u32(12)), at, "directory of size"),
                        .entries = static_cast<std::uint64_t>(end.u16(10))},
                       at);
    }

    Directory directory_of_zip64(std::int64_t end_at) {
        const std::int64_t locator_at = end_at - locator_bytes;
        const std::string locator = locator_at < 0 ? std::string() : read(locator_at, locator_bytes);
        if (!locator.starts_with("PK\6\7")) {
            fail(end_at, "speaks of a ZIP64 directory that is not there");
        }
        const std::int64_t at = within(Record(locator).u64(8), locator_at, "ZIP64 record at byte");
        if (at > locator_at - end64_bytes) {
            fail(locator_at, "a ZIP64 record at byte " + std::to_string(at) + ", which overlaps this one");
        }
        const std::string bytes = read(at, end64_bytes);
        if (!bytes.starts_with("PK\6\6")) {
            fail(at, "no ZIP64 record is here");
        }
        const Record end(bytes);
        return checked({.begin = within(end.u64(48), at, "directory at byte"),
                        .bytes = within(end.u64(40), at, "directory of size"),
                        .entries = end.u64(32)},
                       at);
    }

    Directory checked(Directory directory, std::int64_t end_at) const {
        if (directory.bytes > end_at - directory.begin) {
            fail(end_at, "a directory of " + std::to_string(directory.bytes) + " bytes at byte " +
                             std::to_string(directory.begin) + ", which reaches beyond this record");
        }
        if (directory.bytes > largest_directory) {
            fail(end_at, "a directory of " + std::to_string(directory.bytes) + " bytes; the limit is " +
                             std::to_string(largest_directory));
        }
        return directory;
    }

    std::vector<Entry> entries(const Directory& directory) {
        const std::string bytes = read(directory.begin, directory.bytes);
        std::vector<Entry> out;
        std::set<std::string_view> names;
        std::size_t next = 0;
        while (next < bytes.size()) {
            const std::string_view rest = std::string_view(bytes).substr(next);
            const std::int64_t at = directory.begin + static_cast<std::int64_t>(next);
            next += entry_size(rest, at);
            out.push_back(entry_of(rest, at));
            if (!names.insert(rest.substr(entry_bytes, out.back().name.size())).second) {
                fail(at, "a second member " + out.back().name);
            }
        }
        if (out.size() != directory.entries) {
            fail(directory.begin, "a directory of " + std::to_string(out.size()) +
                                      " members that announces " + std::to_string(directory.entries));
        }
        return out;
    }

    std::size_t entry_size(std::string_view rest, std::int64_t at) const {
        if (static_cast<std::int64_t>(rest.size()) < entry_bytes || !rest.starts_with("PK\1\2")) {
            fail(at, "no entry of a ZIP directory is here");
        }
        const Record record(rest);
        const auto size =
            static_cast<std::size_t>(entry_bytes + record.u16(28) + record.u16(30) + record.u16(32));
        if (size > rest.size()) {
            fail(at, "an entry that reaches beyond its directory");
        }
        return size;
    }

    Entry entry_of(std::string_view rest, std::int64_t at) const {
        const Record record(rest);
        const auto name_bytes = static_cast<std::size_t>(record.u16(28));
        Entry entry;
        entry.name = rest.substr(entry_bytes, name_bytes);
        if ((record.u16(8) & 1) != 0) {
            fail(at, "member " + entry.name + " is encrypted");
        }
        if (record.u16(10) != 0) {
            fail(at, "member " + entry.name + " is compressed, which torch.save never does");
        }
        const std::string_view extra =
            rest.substr(entry_bytes + name_bytes, static_cast<std::size_t>(record.u16(30)));
        // The ZIP64 field has those of the three that do not fit, in this order.
        std::vector<std::uint64_t> large = zip64_values(extra);
        const auto next = [&](std::int64_t value, std::string_view what) {
            if (value != elsewhere32) {
                return within(static_cast<std::uint64_t>(value), at, what);
            }
            if (large.empty()) {
                fail(at, "member " + entry.name + " lacks its ZIP64 sizes");
            }
            const std::uint64_t taken = large.front();
            large.erase(large.begin());
            return within(taken, at, what);
        };
        entry.bytes = next(record.u32(24), "member of size");
        if (next(record.u32(20), "member of size") != entry.bytes) {
            fail(at, "member " + entry.name + " has two sizes although it is not compressed");
        }
        entry.header = next(record.u32(42), "member at byte");
        return entry;
    }

    static std::vector<std::uint64_t> zip64_values(std::string_view extra) {
        constexpr std::int64_t zip64 = 1;
        std::vector<std::uint64_t> out;
        while (extra.size() >= 4) {
            const Record field(extra);
            const auto size = std::min(static_cast<std::size_t>(field.u16(2)), extra.size() - 4);
            for (std::size_t i = 0; field.u16(0) == zip64 && i + 8 <= size; i += 8) {
                out.push_back(field.u64(4 + i));
            }
            extra.remove_prefix(4 + size);
        }
        return out;
    }

    ZipMember member(const Entry& entry, std::int64_t directory_at) {
        if (entry.header > directory_at - local_bytes) {
            fail(entry.header, "member " + entry.name + " overlaps the directory");
        }
        const std::string bytes = read(entry.header, local_bytes);
        if (!bytes.starts_with("PK\3\4")) {
            fail(entry.header, "member " + entry.name + " is not here");
        }
        const Record local(bytes);
        ZipMember out;
        const std::int64_t data = entry.header + local_bytes + local.u16(26) + local.u16(28);
        if (data > directory_at || entry.bytes > directory_at - data) {
            fail(entry.header, "member " + entry.name + " of " + std::to_string(entry.bytes) +
                                   " bytes overlaps the directory");
        }
        out.name = entry.name;
        out.position = range_.begin + data;
        out.bytes = entry.bytes;
        return out;
    }

    void refuse_overlap(std::vector<ZipMember> members) const {
        std::ranges::sort(members, {}, &ZipMember::position);
        for (std::size_t i = 1; i < members.size(); ++i) {
            const ZipMember& before = members[i - 1];
            if (before.position + before.bytes > members[i].position) {
                fail(members[i].position - range_.begin,
                     "members " + before.name + " and " + members[i].name + " overlap");
            }
        }
    }

    std::ifstream stream_;
    const std::string& shown_;
    FileRange range_;
};

}  // namespace

std::vector<ZipMember> read_zip_directory(const std::filesystem::path& path, const std::string& shown) {
    return read_zip_directory(path, shown, {.bytes = static_cast<std::int64_t>(size_of_file(path))});
}

std::vector<ZipMember> read_zip_directory(const std::filesystem::path& path, const std::string& shown,
                                          FileRange range) {
    return Reader(path, shown, range).members();
}

}  // namespace fsdplan
