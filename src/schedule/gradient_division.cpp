#include "schedule/gradient_division.hpp"

#include <cmath>

namespace fsdplan {

double predivide_factor(double factor) {
    double before = 1;
    while (std::fmod(factor, before) == 0 && factor / before > before) {
        before *= 2;
    }
    return before;
}

}  // namespace fsdplan
