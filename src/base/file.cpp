#include "base/file.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

namespace fsdplan {
namespace {

std::string reason() {
    return std::strerror(errno);
}

std::ifstream opened(const std::filesystem::path& path) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) {
        throw Error(ErrorKind::input, path.string(), "is a folder; expected a file");
    }
    std::ifstream stream(path, std::ios::binary);
    if (!stream) {
        throw Error(ErrorKind::input, path.string(), "cannot be read: " + reason());
    }
    return stream;
}

bool is_gzip(std::string_view bytes) {
    return bytes.starts_with("\x1f\x8b");
}

// Owns zlib's state.
class Inflater {
public:
    Inflater() {
        constexpr int gzip_only = 16;
        ready_ = inflateInit2(&stream_, gzip_only + MAX_WBITS) == Z_OK;
    }
    Inflater(const Inflater&) = delete;
    Inflater& operator=(const Inflater&) = delete;
    Inflater(Inflater&&) = delete;
    Inflater& operator=(Inflater&&) = delete;
    ~Inflater() { inflateEnd(&stream_); }

    z_stream& stream() { return stream_; }
    bool ready() const { return ready_; }

private:
    z_stream stream_{};
    bool ready_ = false;
};

constexpr std::size_t largest_unpacked = std::size_t{1} << 29U;  // a small file may unpack to anything

/// The unpacked bytes, up to `enough` of them. `whole` says that `packed` is all of the file.
std::string unpacked(std::string packed, bool whole, std::size_t enough, const std::filesystem::path& path) {
    Inflater inflater;
    if (!inflater.ready()) {
        throw Error(ErrorKind::machine, path.string(), "zlib could not be started");
    }
    z_stream& stream = inflater.stream();
    stream.next_in = reinterpret_cast<Bytef*>(packed.data());
    stream.avail_in = static_cast<uInt>(packed.size());
    std::string out;
    std::array<char, 1U << 16U> chunk{};
    int status = Z_OK;
    while (status != Z_STREAM_END && out.size() < enough) {
        stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
        stream.avail_out = static_cast<uInt>(chunk.size());
        status = inflate(&stream, Z_NO_FLUSH);
        out.append(chunk.data(), chunk.size() - stream.avail_out);
        if (status == Z_BUF_ERROR && !whole) {
            break;
        }
        if (status != Z_OK && status != Z_STREAM_END) {
            throw Error(ErrorKind::input, path.string(),
                        "damaged or cut off gzip data at byte " + std::to_string(stream.total_in));
        }
    }
    return out;
}

}  // namespace

std::uintmax_t size_of_file(const std::filesystem::path& path) {
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(path, error);
    if (error) {
        throw Error(ErrorKind::input, path.string(), "cannot be read: " + error.message());
    }
    return size;
}

std::string read_range(const std::filesystem::path& path, std::uintmax_t offset, std::size_t size) {
    std::ifstream stream = opened(path);
    std::string out(size, '\0');
    stream.seekg(static_cast<std::streamoff>(offset));
    stream.read(out.data(), static_cast<std::streamsize>(size));
    if (static_cast<std::size_t>(stream.gcount()) != size) {
        throw Error(ErrorKind::input, path.string(),
                    "ends before byte " + std::to_string(offset + size) + "; is it cut off?");
    }
    return out;
}

std::string read_file(const std::filesystem::path& path, std::uintmax_t most) {
    std::ifstream stream = opened(path);
    std::string out;
    std::error_code ignored;
    const std::uintmax_t size = std::filesystem::file_size(path, ignored);  // a pipe has none
    out.reserve(ignored ? 0 : static_cast<std::size_t>(std::min(size, most)));
    std::array<char, 1U << 16U> chunk{};
    while (stream.read(chunk.data(), chunk.size()) || stream.gcount() > 0) {
        out.append(chunk.data(), static_cast<std::size_t>(stream.gcount()));
        if (out.size() > most) {
            throw Error(ErrorKind::input, path.string(), "has more than " + std::to_string(most) + " bytes");
        }
    }
    if (stream.bad()) {
        throw Error(ErrorKind::input, path.string(), "cannot be read: " + reason());
    }
    return out;
}

std::string read_text(const std::filesystem::path& path) {
    std::string bytes = read_file(path);
    if (!is_gzip(bytes)) {
        return bytes;
    }
    std::string text = unpacked(std::move(bytes), true, largest_unpacked, path);
    if (text.size() >= largest_unpacked) {
        throw Error(ErrorKind::input, path.string(), "unpacks to more than 512 MiB");
    }
    return text;
}

std::string read_head(const std::filesystem::path& path, std::size_t size) {
    constexpr std::size_t packed_size = std::size_t{1} << 16U;
    const std::uintmax_t file_size = size_of_file(path);
    const auto prefix = [&](std::size_t most) {
        return read_range(path, 0, static_cast<std::size_t>(std::min<std::uintmax_t>(file_size, most)));
    };
    std::string head = prefix(size);
    if (!is_gzip(head)) {
        return head;
    }
    head = unpacked(prefix(packed_size), file_size <= packed_size, size, path);
    head.resize(std::min(head.size(), size));
    return head;
}

void write_file(const std::filesystem::path& path, std::string_view content) {
    std::filesystem::path draft = path;
    draft += ".partial";
    {
        std::ofstream stream(draft, std::ios::binary | std::ios::trunc);
        stream.write(content.data(), static_cast<std::streamsize>(content.size()));
        stream.close();
        if (!stream) {
            const std::string why = reason();
            std::error_code ignored;
            std::filesystem::remove(draft, ignored);
            throw Error(ErrorKind::machine, path.string(), "cannot be written: " + why);
        }
    }
    std::error_code error;
    std::filesystem::rename(draft, path, error);
    if (error) {
        std::error_code ignored;
        std::filesystem::remove(draft, ignored);
        throw Error(ErrorKind::machine, path.string(), "cannot be written: " + error.message());
    }
}

}  // namespace fsdplan
