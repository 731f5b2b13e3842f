#include "fsdplan/report.hpp"
#include "report/json_parts.hpp"
#include "report/json_step.hpp"

namespace fsdplan {

std::string json_report(const SweepQuestion& question, const Explanation& result, std::string_view version) {
    const StepResult& step = result.step;
    JsonWriter out = begin_result("explain", version);
    write_question(out, question, question.jobs.front(), step.assumptions);
    out.member("plan", step.plan.label);
    out.member("runs", step.plan.runs() && !step.run.memory->out_of_memory);
    write_truth(out, "fits", step.plan.fits);
    write_estimate(out, "step_ns", step.run.step_ns);
    write_waits(out, step);
    write_peak(out, step, question.tree);
    out.key("changes").begin_array();
    for (const ExplainedChange& change : result.changes) {
        out.begin_object();
        out.member("settings", change.change);
        out.member("process_bytes", change.process_bytes).member("freed_bytes", change.freed_bytes);
        write_estimate(out, "step_ns", change.step_ns);
        out.member("speed", change.speed);
        write_truth(out, "fits", change.fits);
        out.member("refused", change.refused).member("side_effect", change.side_effect);
        out.end_object();
    }
    out.end_array().end_object();
    return out.take();
}

}  // namespace fsdplan
