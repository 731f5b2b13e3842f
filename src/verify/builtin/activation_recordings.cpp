#include "verify/activation_case.hpp"
#include "verify/format.hpp"

namespace fsdplan::builtin::recording {

namespace {
constexpr std::string_view format = "fsdplan.activation-golden";
}  // namespace

extern const RecordingInfo activation_recordings;
constinit const RecordingInfo activation_recordings{
    .name = "activations",
    .help =
        "what single modules keep for backward and compute (JSON with the format "
        "fsdplan.activation-golden), against exports of the same models",
    .recognises = of_format<format>,
    .replay = replay_json<replay_activations>,
};

}  // namespace fsdplan::builtin::recording
