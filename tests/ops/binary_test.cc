// Cases of Binary.
#include <cmath>

#include "ops/op_case.h"

namespace volta::op_test {

std::vector<OpCase> cases(const Binary&) {
  std::vector<OpCase> all;
  for (const auto& [name, kind] : {std::pair{"add", BinaryKind::kAdd},
                                   {"sub", BinaryKind::kSub},
                                   {"mul", BinaryKind::kMul},
                                   {"div", BinaryKind::kDiv}}) {
    const Binary op = {kind};
    const std::string prefix = std::string(name) + "_";
    const Values y = away(0.5, 2);
    all.push_back(OpCase(prefix + "same", op)
                      .in(f32({4, 19}))
                      .in(f32({4, 19}), y)
                      .grad({0, 1})
                      .by_rows({0, 1}));
    all.push_back(
        OpCase(prefix + "row", op).in(f32({2, 3, 17})).in(f32({17}), y).grad({0, 1}).by_rows({0}));
    all.push_back(OpCase(prefix + "suffix", op)
                      .in(f32({2, 3, 5}))
                      .in(f32({3, 5}), y)
                      .grad({0, 1})
                      .by_rows({0}));
    all.push_back(OpCase(prefix + "number", op)
                      .in(f32({3, 5}))
                      .in(f32(Shape()), y)
                      .grad({0, 1})
                      .by_rows({0}));
    all.push_back(
        OpCase(prefix + "one_element", op).in(f32({3, 5})).in(f32({1, 1, 1}), y).grad({0, 1}));
    all.push_back(OpCase(prefix + "extremes", op)
                      .in(f32({36}), list({0, NAN, INFINITY, -INFINITY, 3e38, 1e-40}))
                      .in(f32({36}), list({1, 0, INFINITY, 2e38, -1e-40, NAN, 3})));
    all.push_back(OpCase(prefix + "many", op).in(f32({130, 517})).in(f32({517}), y).by_rows({0}));
  }
  all.push_back(
      OpCase("scalars", Binary{BinaryKind::kMul}).in(f32(Shape())).in(f32({1})).grad({0, 1}));
  return all;
}

}  // namespace volta::op_test
