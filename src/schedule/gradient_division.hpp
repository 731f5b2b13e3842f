#pragma once

namespace fsdplan {

/// How much of the division by `factor` precedes a sum of gradients, so that half precision does not
/// overflow: a power of two near the root of `factor`. The rest follows.
/// Source: _get_gradient_predivide_factor of PyTorch 2.13.
double predivide_factor(double factor);

}  // namespace fsdplan
