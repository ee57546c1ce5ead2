// Cases of Embedding and EmbeddingGrad.
#include "ops/op_case.h"

namespace volta::op_test {

std::vector<OpCase> cases(const Embedding&) {
  std::vector<OpCase> all;
  all.push_back(
      OpCase("f32", Embedding{}).in(f32({11, 7})).in(i32({3, 5}), ids(11)).grad({0}).by_rows({1}));
  all.push_back(OpCase("bf16", Embedding{}).in(bf16({11, 33})).in(i32({6}), ids(11)).by_rows({1}));
  all.push_back(OpCase("f16", Embedding{}).in(f16({11, 16})).in(i32({6}), ids(11)).by_rows({1}));
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    all.push_back(OpCase("panels_" + std::string(dtype_name(dtype)), Embedding{})
                      .in(in_panels({dtype, Shape(75, 13)}, true))
                      .in(i32({40}), ids(75))
                      .by_rows({1}));
  }
  all.push_back(OpCase("one", Embedding{}).in(f32({1, 1})).in(i32(Shape()), list({0})).grad({0}));
  all.push_back(
      OpCase("many", Embedding{}).in(f32({257, 130})).in(i32({4, 150}), ids(257)).by_rows({1}));
  return all;
}

std::vector<OpCase> cases(const EmbeddingGrad&) {
  std::vector<OpCase> all;
  all.push_back(OpCase("repeated", EmbeddingGrad{5}).in(i32({3, 7}), ids(5)).in(f32({3, 7, 9})));
  all.push_back(
      OpCase("all_the_same", EmbeddingGrad{3}).in(i32({50}), list({1})).in(f32({50, 17})));
  all.push_back(OpCase("scalar", EmbeddingGrad{2}).in(i32(Shape()), list({1})).in(f32({4})));
  all.push_back(OpCase("many", EmbeddingGrad{67}).in(i32({600}), ids(67)).in(f32({600, 130})));
  return all;
}

}  // namespace volta::op_test
