// Cases of MatMul: every pair of transposes, sizes around the vector widths and panels, the types,
// batches and epilogues.
#include "ops/op_case.h"

namespace volta::op_test {

namespace {

struct Sizes {
  std::int64_t m, k, n;
};

std::string text(const Sizes& s) {
  return std::to_string(s.m) + "x" + std::to_string(s.k) + "x" + std::to_string(s.n);
}

std::string transposes(const MatMul& op) {
  return std::string(op.transpose_a ? "t" : "n") + (op.transpose_b ? "t" : "n");
}

OpCase plain(const MatMul& op, const Sizes& s, DType a, DType b) {
  const std::string types = std::string(dtype_name(a)) + "_" + std::string(dtype_name(b));
  OpCase c(transposes(op) + "_" + text(s) + "_" + types, op);
  c = std::move(c)
          .in({a, op.transpose_a ? Shape(s.k, s.m) : Shape(s.m, s.k)})
          .in({b, op.transpose_b ? Shape(s.n, s.k) : Shape(s.k, s.n)});
  if (s.m * s.k * s.n <= 8000) c.differentiable = {0, 1};
  if (!op.transpose_a) c.rows = {0};
  return c;
}

}  // namespace

std::vector<OpCase> cases(const MatMul&) {
  std::vector<OpCase> all;
  constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16, kF16 = DType::kF16;
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const MatMul op = {.transpose_a = ta, .transpose_b = tb};
      for (const Sizes& s : {Sizes{1, 1, 1},
                             {1, 64, 33},
                             {5, 7, 3},
                             {4, 1, 17},
                             {17, 13, 31},
                             {33, 65, 129},
                             {70, 530, 90}}) {
        all.push_back(plain(op, s, kF32, kF32));
      }
      for (const auto& [a, b] :
           {std::pair{kBF16, kBF16}, {kF32, kBF16}, {kF16, kF16}, {kF32, kF16}, {kBF16, kF32}}) {
        all.push_back(plain(op, {9, 35, 19}, a, b));
      }
      // Several tiles of the tensor cores' kernels: rows of operands and results that are multiples
      // of 16 bytes, rows that are not, and ragged ends.
      for (const Sizes& s : {Sizes{136, 72, 264}, {142, 75, 267}, {386, 72, 70}}) {
        all.push_back(plain(op, s, kF32, kF32));
      }
      const MatMul batched = {.transpose_a = ta, .transpose_b = tb, .batched = true};
      all.push_back(OpCase("batched_" + transposes(op), batched)
                        .in(ta ? f32({2, 3, 7, 5}) : f32({2, 3, 5, 7}))
                        .in(tb ? f32({2, 3, 9, 7}) : f32({2, 3, 7, 9}))
                        .grad({0, 1})
                        .by_rows({0, 1}));
    }
  }
  all.push_back(OpCase("leading_axes", MatMul{})
                    .in(f32({2, 3, 4, 5}))
                    .in(f32({5, 6}))
                    .grad({0, 1})
                    .by_rows({0}));
  all.push_back(OpCase("leading_axes_of_both", MatMul{.transpose_a = true})
                    .in(f32({2, 3, 4}))
                    .in(f32({3, 2, 5}))
                    .grad({0, 1}));
  all.push_back(OpCase("leading_axes_of_both_tt", MatMul{.transpose_a = true, .transpose_b = true})
                    .in(f32({2, 3, 4}))
                    .in(f32({5, 3, 6}), uniform(-1, 1))
                    .grad({0, 1}));
  for (const auto& [name, activation] : {std::pair{"none", Activation::kNone},
                                         {"gelu", Activation::kGelu},
                                         {"gelu_tanh", Activation::kGeluTanh},
                                         {"silu", Activation::kSilu}}) {
    for (const bool residual : {false, true}) {
      const MatMul op = {.transpose_b = residual,
                         .has_bias = true,
                         .has_residual = residual,
                         .activation = activation};
      OpCase c(std::string("bias_") + name + (residual ? "_residual" : ""), op);
      c = std::move(c).in(f32({6, 11})).in(residual ? f32({21, 11}) : f32({11, 21})).in(f32({21}));
      c.rows = {0};
      c.differentiable = {0, 1, 2};
      if (residual) {
        c = std::move(c).in(f32({6, 21}));
        c.rows.push_back(3);
        c.differentiable.push_back(3);
      }
      all.push_back(std::move(c));
    }
  }
  for (const std::int64_t n : {264, 267}) {
    const MatMul op = {.transpose_b = true,
                       .has_bias = true,
                       .has_residual = true,
                       .activation = Activation::kGeluTanh};
    all.push_back(OpCase("tiles_bias_gelu_tanh_residual_" + std::to_string(n), op)
                      .in(f32({150, 136}))
                      .in(f32({n, 136}))
                      .in(f32({n}))
                      .in(f32({150, n}))
                      .by_rows({0, 3}));
  }
  // Sums stay within 4 of the bias: clear of relu's kink.
  all.push_back(OpCase("bias_relu", MatMul{.has_bias = true, .activation = Activation::kRelu})
                    .in(f32({6, 4}))
                    .in(f32({4, 21}))
                    .in(f32({21}), list({5, -5}))
                    .grad({0, 1, 2})
                    .by_rows({0}));
  all.push_back(OpCase("residual_only", MatMul{.has_residual = true})
                    .in(f32({3, 5, 7}))
                    .in(f32({7, 9}))
                    .in(f32({3, 5, 9}))
                    .grad({0, 1, 2})
                    .by_rows({0, 2}));
  // On a GPU in 16 bits: weights that are streamed for up to 16 rows. Parts of their rows, more
  // rows and odd addresses have other kernels, with the same bits.
  for (const Sizes& s : {Sizes{17, 64, 27}, {16, 320, 24}, {3, 768, 1100}, {20, 576, 9}}) {
    OpCase c = plain({.transpose_b = true}, s, kF32, kF32);
    c.name += "_streamed";
    c.differentiable = {};
    all.push_back(std::move(c));
  }
  all.push_back(OpCase("streamed_bias_silu_residual", MatMul{.transpose_b = true,
                                                             .has_bias = true,
                                                             .has_residual = true,
                                                             .activation = Activation::kSilu})
                    .in(f32({18, 256}))
                    .in(f32({44, 256}))
                    .in(f32({44}))
                    .in(f32({18, 44}))
                    .by_rows({0, 3}));
  // Packed weights: whole and ragged panels, one K block and several, few rows and many.
  for (const bool tb : {false, true}) {
    for (const DType b : {kF32, kBF16, kF16}) {
      for (const Sizes& s : {Sizes{1, 1, 1},
                             {1, 400, 70},
                             {1, 771, 40},
                             {3, 35, 300},
                             {9, 64, 64},
                             {40, 530, 333}}) {
        OpCase c = plain({.transpose_b = tb}, s, kF32, b);
        c.name += "_panels";
        c.specs[1] = in_panels(c.specs[1], tb);
        c.differentiable = {};
        all.push_back(std::move(c));
      }
    }
  }
  all.push_back(
      OpCase("panels_bias_silu_residual",
             MatMul{.has_bias = true, .has_residual = true, .activation = Activation::kSilu})
          .in(f32({6, 11}))
          .in(in_panels(f32({11, 21}), false))
          .in(f32({21}))
          .in(f32({6, 21}))
          .by_rows({0, 3}));
  all.push_back(OpCase("large_values", MatMul{})
                    .in(f32({5, 40}), uniform(-1e18, 1e18))
                    .in(f32({40, 9}), uniform(-1e18, 1e18)));
  all.push_back(OpCase("nan_and_infinity", MatMul{})
                    .in(f32({4, 8}), list({1, 2, NAN, 4, 5, 6, 7, 8, 1, INFINITY, 1, 1,
                                           1, 1, 1,   1, 2, 3, 4, 5, 6, 7,        8, 9}))
                    .in(f32({8, 6}), uniform(0.5, 1)));
  return all;
}

}  // namespace volta::op_test
