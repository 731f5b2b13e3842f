#include "model/onnx/graph.hpp"

// In place of read_protobuf.cpp where there is no protobuf.
namespace fsdplan::onnx {

Graph read_graph(const std::string& /*path*/, const std::string& shown) {
    throw Error(
        ErrorKind::machine, shown,
        "this fsdplan was built without ONNX support; install libprotobuf-dev and protobuf-compiler and "
        "configure it again with -DFSDPLAN_ONNX=ON");
}

}  // namespace fsdplan::onnx
