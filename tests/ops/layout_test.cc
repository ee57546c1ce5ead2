// Cases of Reshape, Permute, Slice and Pad.
#include "ops/op_case.h"

namespace volta::op_test {

std::vector<OpCase> cases(const Reshape&) {
  std::vector<OpCase> all;
  all.push_back(OpCase("flat", Reshape{Shape(30)}).in(f32({2, 3, 5})).grad({0}));
  all.push_back(OpCase("deep", Reshape{Shape(1, 2, 3, 5, 1, 1)}).in(f32({30})).grad({0}));
  all.push_back(OpCase("scalar", Reshape{Shape()}).in(f32({1, 1})).grad({0}));
  all.push_back(OpCase("i32", Reshape{Shape(6)}).in(i32({2, 3}), ids(100)));
  all.push_back(OpCase("many", Reshape{Shape(300, 200)}).in(f32({60000})));
  return all;
}

std::vector<OpCase> cases(const Permute&) {
  std::vector<OpCase> all;
  all.push_back(OpCase("transpose", Permute{{1, 0}}).in(f32({5, 7})).grad({0}));
  all.push_back(OpCase("transpose_wide", Permute{{1, 0}}).in(f32({67, 1030})));
  all.push_back(
      OpCase("heads", Permute{{0, 2, 1, 3}}).in(f32({2, 3, 4, 5})).grad({0}).by_rows({0}));
  all.push_back(OpCase("heads_many", Permute{{0, 2, 1, 3}}).in(f32({4, 33, 5, 101})).by_rows({0}));
  all.push_back(OpCase("rotate", Permute{{2, 0, 1}}).in(f32({3, 4, 5})).grad({0}));
  all.push_back(OpCase("six", Permute{{5, 3, 1, 0, 2, 4}}).in(f32({2, 3, 1, 2, 3, 2})).grad({0}));
  all.push_back(OpCase("identity", Permute{{0, 1, 2}}).in(f32({3, 4, 5})).grad({0}).by_rows({0}));
  all.push_back(OpCase("scalar", Permute{}).in(f32(Shape())).grad({0}));
  all.push_back(OpCase("bf16", Permute{{1, 0}}).in(bf16({9, 17})));
  all.push_back(OpCase("u8", Permute{{1, 0}}).in({DType::kU8, Shape(9, 17)}, ids(256)));
  all.push_back(OpCase("i64", Permute{{1, 0}}).in(i64({9, 17}), ids(1e9)));
  return all;
}

std::vector<OpCase> cases(const Slice&) {
  std::vector<OpCase> all;
  all.push_back(OpCase("first_axis", Slice{0, 1, 2}).in(f32({5, 3})).grad({0}));
  all.push_back(OpCase("middle_axis", Slice{1, 2, 3}).in(f32({2, 7, 3})).grad({0}).by_rows({0}));
  all.push_back(OpCase("last_axis", Slice{2, 4, 1}).in(f32({2, 3, 5})).grad({0}).by_rows({0}));
  all.push_back(OpCase("everything", Slice{0, 0, 5}).in(f32({5})).grad({0}));
  all.push_back(OpCase("f16", Slice{1, 3, 9}).in(f16({4, 15})).by_rows({0}));
  all.push_back(OpCase("i64", Slice{0, 1, 1}).in(i64({3}), ids(1e12)));
  all.push_back(OpCase("many", Slice{1, 100, 700}).in(f32({80, 1000})).by_rows({0}));
  return all;
}

std::vector<OpCase> cases(const Pad&) {
  std::vector<OpCase> all;
  all.push_back(OpCase("first_axis", Pad{0, 1, 2}).in(f32({5, 3})).grad({0}));
  all.push_back(OpCase("middle_axis", Pad{1, 2, 0}).in(f32({2, 7, 3})).grad({0}).by_rows({0}));
  all.push_back(OpCase("last_axis", Pad{2, 0, 3}).in(f32({2, 3, 5})).grad({0}).by_rows({0}));
  all.push_back(OpCase("nothing", Pad{0, 0, 0}).in(f32({5})).grad({0}));
  all.push_back(OpCase("bf16", Pad{1, 3, 9}).in(bf16({4, 15})).by_rows({0}));
  all.push_back(OpCase("i32", Pad{0, 1, 1}).in(i32({3}), ids(1e6)));
  all.push_back(OpCase("many", Pad{1, 100, 201}).in(f32({80, 700})).by_rows({0}));
  return all;
}

}  // namespace volta::op_test
