#include "fsdplan/report.hpp"
#include "report/json_writer.hpp"

namespace fsdplan {
namespace {

void write_pair(JsonWriter& out, double first, double second) {
    out.begin_array(true).value(first).value(second).end_array();
}

void write_gpu(JsonWriter& out, const Gpu& gpu) {
    out.key("gpu").begin_object();
    out.member("format", "fsdplan.gpu").member("version", std::int64_t{1});
    out.member("name", gpu.name).member("title", gpu.title);
    out.key("aliases").begin_array(true).end_array();
    out.key("memory_seen_by_cuda_GiB").begin_array(true);
    for (const double report : gpu.memory_reports) {
        out.value(report);
    }
    out.end_array();
    out.member("sm_count", gpu.sm_count).member("memory_GBps", gpu.memory_bytes_per_s / 1e9);
    out.member("kernel_start_bytes", gpu.kernel_start_bytes);
    out.key("dense_tflops").begin_object(true);
    out.member("half", gpu.flops_half / 1e12).member("fp32", gpu.flops_single / 1e12).end_object();
    out.key("constants").begin_object();
    const auto constant = [&out](std::string_view name, const Constant& known) {
        out.key(name).begin_object(true);
        out.member("value", known.value).member("low", known.low).member("high", known.high);
        out.member("source", known.source).end_object();
    };
    constant("products", gpu.constants.products);
    constant("product_start", gpu.constants.product_start);
    constant("attention_forward", gpu.constants.attention_forward);
    constant("attention_backward", gpu.constants.attention_backward);
    constant("memory", gpu.constants.memory);
    constant("overlap", gpu.constants.overlap);
    out.end_object();
    out.member("link_GBps", gpu.link_bytes_per_s / 1e9).member("all_to_all_links", gpu.all_to_all_links);
    out.member("pcie_GBps", gpu.pcie_bytes_per_s / 1e9);
    out.member("cublas_workspace_bytes", gpu.cublas_workspace_bytes).member("source", gpu.source);
    out.end_object();
}

void write_devices(JsonWriter& out, const Cluster& devices) {
    out.key("devices").begin_object();
    out.member("format", "fsdplan.cluster").member("version", std::int64_t{1});
    out.member("name", devices.name).member("title", devices.title);
    out.key("aliases").begin_array(true).end_array();
    write_gpu(out, devices.gpu);
    out.member("gpus", devices.gpus).member("gpus_per_node", devices.gpus_per_node);
    out.member("network_GBps", devices.network_bytes_per_s / 1e9).member("source", devices.source);
    out.end_object();
}

void write_fit(JsonWriter& out, const CurveFit& fit) {
    out.key("lines").begin_array();
    for (const CollectiveCurve::Line& line : fit.lines) {
        write_pair(out, line.us, line.bytes_per_us / 1e3);
    }
    out.end_array();
    out.key("error");
    if (fit.residual) {
        out.begin_object(true);
        out.member("mean", fit.residual->mean).member("worst", fit.residual->worst).end_object();
    } else {
        out.null();
    }
}

void write_curve(JsonWriter& out, const CalibratedCurve& curve) {
    const std::vector<CollectiveCurve::Point> points = median_points(curve.samples);
    out.begin_object();
    out.member("id", id_of(curve)).member("collective", name(curve.kind));
    out.member("ranks", curve.ranks).member("nodes", curve.nodes);
    out.key("points").begin_array();
    for (const CollectiveCurve::Point& point : points) {
        write_pair(out, point.bytes, point.us);
    }
    out.end_array();
    write_fit(out, fit_curve(points));
    out.key("samples").begin_array();
    for (const CalibrationSample& sample : curve.samples) {
        out.begin_array(true).value(sample.bytes);
        for (const double us : sample.us) {
            out.value(us);
        }
        out.end_array();
    }
    out.end_array();
    out.member("source", curve.source).end_object();
}

}  // namespace

std::string json_report(const Calibration& calibration, std::string_view version) {
    JsonWriter out;
    out.begin_object();
    out.member("format", "fsdplan.calibration").member("version", std::int64_t{1});
    out.key("made_by").begin_object(true);
    out.member("fsdplan", version).member("backend", calibration.backend);
    out.member("library", calibration.library).end_object();
    if (calibration.devices) {
        write_devices(out, *calibration.devices);
    }
    out.key("curves").begin_array();
    for (const CalibratedCurve& curve : calibration.curves) {
        write_curve(out, curve);
    }
    out.end_array();
    out.end_object();
    return out.take();
}

}  // namespace fsdplan
