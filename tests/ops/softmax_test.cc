// Cases of Softmax and SoftmaxGrad.
#include <cmath>

#include "ops/op_case.h"

namespace volta::op_test {

std::vector<OpCase> cases(const Softmax&) {
  std::vector<OpCase> all;
  for (const std::int64_t columns : {1, 5, 16, 37}) {
    all.push_back(OpCase("columns_" + std::to_string(columns), Softmax{})
                      .in(f32(Shape(2, 3, columns)), uniform(-3, 3))
                      .grad({0})
                      .by_rows({0}));
  }
  all.push_back(
      OpCase("scaled", Softmax{0.125f}).in(f32({4, 33}), uniform(-20, 20)).grad({0}).by_rows({0}));
  all.push_back(OpCase("negative_scale", Softmax{-2.0f}).in(f32({4, 9})).grad({0}).by_rows({0}));
  all.push_back(OpCase("vector", Softmax{}).in(f32({19})).grad({0}));
  all.push_back(OpCase("large", Softmax{}).in(f32({4, 33}), uniform(-1e4, 1e4)).by_rows({0}));
  all.push_back(OpCase("huge", Softmax{}).in(f32({4, 9}), list({3e38, -3e38, 0, 1e38})));
  all.push_back(OpCase("equal", Softmax{}).in(f32({4, 33}), list({7})));
  all.push_back(OpCase("masked", Softmax{}).in(f32({4, 9}), list({-INFINITY, 0, 1, -INFINITY, 2})));
  all.push_back(OpCase("nan", Softmax{})
                    .in(f32({3, 8}), list({0, 1, 2, 3, 4, 5, 6, 7, 0, NAN, 2, 3, 4, 5, 6, 7})));
  all.push_back(OpCase("many", Softmax{0.5f}).in(f32({67, 1030}), uniform(-5, 5)).by_rows({0}));
  return all;
}

std::vector<OpCase> cases(const SoftmaxGrad&) {
  std::vector<OpCase> all;
  for (const std::int64_t columns : {1, 5, 37, 1030}) {
    all.push_back(OpCase("columns_" + std::to_string(columns), SoftmaxGrad{0.5f})
                      .in(f32(Shape(67, columns)), uniform(0, 1))
                      .in(f32(Shape(67, columns)))
                      .by_rows({0, 1}));
  }
  return all;
}

}  // namespace volta::op_test
