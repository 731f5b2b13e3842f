#include "report/json_step.hpp"

#include "report/step_facts.hpp"

namespace fsdplan {

void write_estimate(JsonWriter& out, std::string_view key, const Estimate& e) {
    out.key(key).begin_object(true);
    out.member("value", e.value).member("low", e.low).member("high", e.high);
    out.end_object();
}

void write_categories(JsonWriter& out, std::string_view key,
                      const std::array<std::int64_t, category_count>& bytes) {
    out.key(key).begin_object(true);
    for (std::size_t c = 0; c < category_count; ++c) {
        if (bytes[c] != 0) {
            out.member(name(static_cast<Category>(c)), bytes[c]);
        }
    }
    out.end_object();
}

void write_waits(JsonWriter& out, const StepResult& result) {
    out.key("waits").begin_array();
    for (const CauseSum& sum : cause_sums(result.schedule, result.run)) {
        out.begin_object(true);
        out.member("cause", name(sum.cause)).member("ns", sum.ns).member("count", sum.count);
        out.end_object();
    }
    out.end_array();
}

void write_peak(JsonWriter& out, const StepResult& result, const ModuleTree& tree) {
    const MemoryProfile& memory = *result.run.memory;
    out.key("peak").begin_object();
    out.member("allocated_bytes", memory.peak.allocated_bytes);
    write_estimate(out, "reserved_bytes", *result.run.reserved_bytes);
    write_estimate(out, "process_bytes", *result.run.process_bytes);
    out.member("host_bytes", memory.host_peak_bytes);
    out.member("alloc_retries", memory.alloc_retries.value_or(0));
    out.member("at", shown_op(result.schedule, memory.peak.op));
    write_categories(out, "by_category", memory.peak.by_category);
    out.key("out_of_memory");
    if (memory.out_of_memory) {
        const OutOfMemory& oom = *memory.out_of_memory;
        out.begin_object(true);
        out.member("at", shown_op(result.schedule, oom.op)).member("requested_bytes", oom.requested_bytes);
        out.member("allocated_bytes", oom.allocated_bytes).member("reserved_bytes", oom.reserved_bytes);
        out.member("free_bytes", oom.free_bytes);
        out.end_object();
    } else {
        out.null();
    }
    out.end_object();
    out.key("peak_live").begin_array();
    for (const LiveRow& live : live_rows(result.schedule, memory, tree)) {
        out.begin_object(true);
        out.member("category", name(live.category)).member("owner", live.owner);
        out.member("bytes", live.bytes).member("buffers", live.count);
        out.end_object();
    }
    out.end_array();
}

}  // namespace fsdplan
