#include "model/read_shape.hpp"

namespace fsdplan {

void read_shape(json::Value shape, Tensor& tensor) {
    for (const json::Value element : shape.elements()) {
        const std::int64_t size = element.integer(0, largest_total);
        if (size != 0 && tensor.numel > largest_total / size) {
            throw Error(ErrorKind::input, shape.where(),
                        "more than 2^53 elements; expected a tensor that can exist");
        }
        tensor.shape.push_back(size);
        tensor.numel *= size;
    }
}

}  // namespace fsdplan
