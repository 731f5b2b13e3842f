#include "schedule/fsdp2_gradient.hpp"

namespace fsdplan::fsdp2 {
namespace {

// A wider dtype is only taken on arrival where the gradient stays; before a reduction the copy-in widens.
bool changes_on_arrival(const Member& m, DType reduce, bool reduces) {
    return !reduces || m.has_accumulated || bits(reduce) < bits(m.gather);
}

}  // namespace

void accumulate(Member& m, const Group& g, bool reduces, const TorchBehaviour& torch, Emitter& emit) {
    emit.release(m.incoming);
    m.has_gradient = true;
    m.kept = m.gradient;
    if (torch.widens_gradients_early && g.reduce && *g.reduce != m.gather &&
        changes_on_arrival(m, *g.reduce, reduces)) {
        if (!emit.is_live(m.accumulated)) {
            emit.allocate(m.accumulated);
        }
        emit.copy(m.bytes, g.unit, Stream::compute);
        emit.free(m.gradient);
        m.kept = m.accumulated;
    }
}

std::int64_t count_gradients(const Group& g) {
    std::int64_t found = 0;
    for (const Member& m : g.members) {
        found += (m.has_gradient ? 1 : 0) + (m.has_accumulated ? 1 : 0);
    }
    return found;
}

void add_to_accumulated(Group& g, Emitter& emit) {
    for (Member& m : g.members) {
        if (m.has_accumulated && m.has_gradient) {
            emit.copy(m.bytes, g.unit, Stream::compute);
            if (m.kept != m.accumulated) {
                emit.free(m.kept);
            }
            m.has_gradient = false;
        }
    }
}

void keep_unreduced(Group& g, Emitter& emit) {
    if (!g.reduce) {
        return;
    }
    for (Member& m : g.members) {
        if (!m.has_gradient || *g.reduce == m.gather) {
            continue;
        }
        if (m.kept != m.accumulated) {
            emit.allocate(m.accumulated);
            emit.copy(m.bytes, g.unit, Stream::compute);
            emit.free(m.gradient);
        }
        m.has_gradient = false;
        m.has_accumulated = true;
    }
}

}  // namespace fsdplan::fsdp2
