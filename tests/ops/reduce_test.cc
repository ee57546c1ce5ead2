// Cases of Reduce and Expand.
#include <cmath>

#include "ops/op_case.h"

namespace volta::op_test {

std::vector<OpCase> cases(const Reduce&) {
  std::vector<OpCase> all;
  for (const auto& [name, kind] : {std::pair{"sum", ReduceKind::kSum},
                                   {"mean", ReduceKind::kMean},
                                   {"max", ReduceKind::kMax}}) {
    const std::string prefix = std::string(name) + "_";
    const std::vector<std::size_t> grad =
        kind == ReduceKind::kMax ? std::vector<std::size_t>() : std::vector<std::size_t>{0};
    all.push_back(
        OpCase(prefix + "last", Reduce{kind, 2, 3}).in(f32({3, 2, 37})).grad(grad).by_rows({0}));
    all.push_back(OpCase(prefix + "first", Reduce{kind, 0, 1}).in(f32({7, 19})).grad(grad));
    all.push_back(
        OpCase(prefix + "middle", Reduce{kind, 1, 2}).in(f32({3, 5, 7})).grad(grad).by_rows({0}));
    all.push_back(OpCase(prefix + "all", Reduce{kind, 0, 3}).in(f32({2, 3, 5})).grad(grad));
    all.push_back(OpCase(prefix + "one", Reduce{kind, 0, 1}).in(f32({1})).grad(grad));
    all.push_back(
        OpCase(prefix + "many_rows", Reduce{kind, 1, 2}).in(f32({67, 1030})).by_rows({0}));
    all.push_back(OpCase(prefix + "many_columns", Reduce{kind, 0, 1}).in(f32({1030, 67})));
    all.push_back(OpCase(prefix + "long", Reduce{kind, 0, 1}).in(f32({100003})));
    all.push_back(
        OpCase(prefix + "nan", Reduce{kind, 1, 2})
            .in(f32({6, 19}), list({1, 2, 3, 4, 5, 6, 7, 8,   9,        1,         2, 3,
                                    4, 5, 6, 7, 8, 9, 0, NAN, INFINITY, -INFINITY, 4, 5})));
  }
  return all;
}

std::vector<OpCase> cases(const Expand&) {
  std::vector<OpCase> all;
  all.push_back(OpCase("front", Expand{Shape(4, 3, 5), 0}).in(f32({3, 5})).grad({0}));
  all.push_back(OpCase("back", Expand{Shape(4, 3, 5), 1, -0.3f}).in(f32({4})).grad({0}));
  all.push_back(OpCase("middle", Expand{Shape(4, 3, 5), 1, 2.5f}).in(f32({4, 5})).grad({0}));
  all.push_back(OpCase("number", Expand{Shape(3, 7), 0, 0.1f}).in(f32(Shape())).grad({0}));
  all.push_back(OpCase("nothing_added", Expand{Shape(7), 0, 0.1f}).in(f32({7})).grad({0}));
  all.push_back(OpCase("many", Expand{Shape(130, 517), 0, 0.1f}).in(f32({517})));
  return all;
}

}  // namespace volta::op_test
