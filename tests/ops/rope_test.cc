// Cases of Rope.
#include "ops/op_case.h"

namespace volta::op_test {

std::vector<OpCase> cases(const Rope&) {
  std::vector<OpCase> all;
  for (const bool interleaved : {false, true}) {
    for (const bool inverse : {false, true}) {
      const Rope op = {2, 6, interleaved, inverse};
      const std::string suffix =
          std::string(interleaved ? "_interleaved" : "") + (inverse ? "_inverse" : "");
      all.push_back(OpCase("all" + suffix, op)
                        .in(f32({2, 3, 12}))
                        .in(i32({2, 3}), ids(9))
                        .in(f32({9, 6}))
                        .grad({0})
                        .by_rows({0, 1}));
      all.push_back(OpCase("packed" + suffix, op)  // Later heads and the end of each are copied.
                        .in(f32({2, 3, 24}))
                        .in(i32({3}), ids(9))
                        .in(f32({9, 4}))
                        .grad({0})
                        .by_rows({0}));
      all.push_back(OpCase("wide" + suffix, Rope{3, 64, interleaved, inverse})
                        .in(f32({40, 8, 256}))
                        .in(i32({40, 8}), ids(50))
                        .in(f32({50, 64}))
                        .by_rows({0, 1}));
    }
  }
  all.push_back(OpCase("one_row", Rope{1, 2})
                    .in(f32({2}))
                    .in(i32(Shape()), list({3}))
                    .in(f32({4, 2}))
                    .grad({0}));
  return all;
}

}  // namespace volta::op_test
