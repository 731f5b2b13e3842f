#include "fsdplan/simulate.hpp"

namespace fsdplan {

std::string_view name(Cause cause) {
    switch (cause) {
        case Cause::gather:
            return "gather";
        case Cause::reduce:
            return "reduce";
        case Cause::broadcast:
            return "broadcast";
        case Cause::copy:
            return "copy";
        case Cause::compute:
            return "compute";
        case Cause::transfer:
            return "transfer";
        case Cause::limiter:
            return "limiter";
        case Cause::host:
            return "host";
        case Cause::latency:
            return "latency";
        case Cause::memory:
            return "memory";
    }
    return "";
}

std::string_view name(Method method) {
    switch (method) {
        case Method::array_pass:
            return "array pass";
        case Method::event_simulator:
            return "event simulator";
        case Method::measured:
            return "measured";
    }
    return "";
}

}  // namespace fsdplan
