#include "schedule/emitter.hpp"

namespace fsdplan {

void Emitter::reserve(std::size_t ops, std::size_t buffers) {
    out_.ops.reserve(ops);
    out_.buffers.reserve(buffers);
    live_.reserve(buffers);
}

void Emitter::use(std::int32_t buffer, Stream stream) {
    if (row(buffer).stream != stream && is_live(buffer)) {
        add({.kind = OpKind::use,
             .stream = stream,
             .pass = pass,
             .unit = row(buffer).unit,
             .target = buffer});
    }
}

void Emitter::relabel(std::int32_t buffer, Category category) {
    if (is_live(buffer)) {
        add({.kind = OpKind::relabel,
             .stream = row(buffer).stream,
             .pass = pass,
             .detail = static_cast<std::uint8_t>(category),
             .unit = row(buffer).unit,
             .target = buffer});
    }
}

std::int32_t Emitter::collective(const CollectiveCall& call) {
    const Key key{static_cast<int>(call.kind),
                  static_cast<int>(call.group),
                  static_cast<int>(call.dtype),
                  static_cast<int>(call.reduction),
                  call.ranks,
                  call.input_numel,
                  call.output_numel};
    const auto [place, added] =
        collectives_.try_emplace(key, static_cast<std::int32_t>(out_.collectives.size()));
    if (added) {
        out_.collectives.push_back(call);
    }
    return place->second;
}

void Emitter::issue(std::int32_t collective, std::int32_t unit, Stream stream, bool prefetched) {
    add({.kind = OpKind::collective,
         .stream = stream,
         .pass = pass,
         .unit = unit,
         .target = collective,
         .launches = 1,
         .prefetched = prefetched ? 1 : 0});
}

void Emitter::copy(std::int64_t bytes, std::int32_t unit, Stream stream, OpKind kind, std::int32_t launches) {
    if (bytes > 0) {
        add({.kind = kind,
             .stream = stream,
             .pass = pass,
             .unit = unit,
             .launches = launches,
             .bytes = bytes});
    }
}

void Emitter::host(HostWork work, std::int32_t unit) {
    add({.kind = OpKind::host, .pass = pass, .unit = unit, .target = static_cast<std::int32_t>(work)});
}

std::int32_t Emitter::record(Stream stream) {
    add({.kind = OpKind::record, .stream = stream, .pass = pass});
    return static_cast<std::int32_t>(out_.ops.size()) - 1;
}

void Emitter::wait(Stream stream, std::int32_t event) {
    add({.kind = OpKind::wait, .stream = stream, .pass = pass, .target = event});
}

void Emitter::block(std::int32_t event) {
    add({.kind = OpKind::block, .pass = pass, .target = event});
}

void Emitter::mark(Mark mark, std::int32_t unit, std::int64_t number) {
    add({.kind = OpKind::mark,
         .pass = pass,
         .detail = static_cast<std::uint8_t>(mark),
         .unit = unit,
         .bytes = number});
}

void Emitter::mark_module(Mark mark, std::int32_t module, std::int32_t unit) {
    add({.kind = OpKind::mark,
         .pass = pass,
         .detail = static_cast<std::uint8_t>(mark),
         .unit = unit,
         .module = module});
}

}  // namespace fsdplan
