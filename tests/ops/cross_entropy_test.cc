// Cases of CrossEntropy and CrossEntropyGrad.
#include <cmath>

#include "ops/op_case.h"

namespace volta::op_test {

namespace {

void prepare_lse(std::vector<Array>& in) {
  std::vector<Array> forward = {in[0], in[1]};
  store_rounded(in[2], reference::run(CrossEntropy{}, forward)[1]);
}

OpCase backward(const std::string& name, const Shape& shape, const Values& logits,
                const Values& targets) {
  Shape rows;
  for (int i = 0; i + 1 < shape.rank(); ++i) rows.push_back(shape[i]);
  OpCase c(name, CrossEntropyGrad{});
  c = std::move(c)
          .in(f32(shape), logits)
          .in(i32(rows), targets)
          .in(f32(rows))
          .in(f32(rows))
          .with(prepare_lse);
  if (shape.rank() > 1) c.rows = {0, 1, 2, 3};
  return c;
}

// The loss and the gradient at once.
OpCase both(const std::string& name, const Shape& shape, const Values& logits,
            const Values& targets) {
  Shape rows;
  for (int i = 0; i + 1 < shape.rank(); ++i) rows.push_back(shape[i]);
  OpCase c("with_loss_" + name, CrossEntropyGrad{.with_loss = true});
  c = std::move(c).in(f32(shape), logits).in(i32(rows), targets).in(f32(rows));
  if (shape.rank() > 1) c.rows = {0, 1, 2};
  return c;
}

}  // namespace

std::vector<OpCase> cases(const CrossEntropy&) {
  std::vector<OpCase> all;
  for (const std::int64_t columns : {1, 5, 16, 65}) {
    all.push_back(OpCase("columns_" + std::to_string(columns), CrossEntropy{})
                      .in(f32(Shape(2, 3, columns)), uniform(-4, 4))
                      .in(i32({2, 3}), ids(static_cast<double>(columns)))
                      .grad({0})
                      .by_rows({0, 1}));
  }
  all.push_back(
      OpCase("vector", CrossEntropy{}).in(f32({9})).in(i32(Shape()), list({4})).grad({0}));
  all.push_back(OpCase("ignored", CrossEntropy{})
                    .in(f32({6, 9}))
                    .in(i32({6}), list({1, -1, 3, -100}))
                    .grad({0})
                    .by_rows({0, 1}));
  all.push_back(OpCase("large", CrossEntropy{})
                    .in(f32({5, 33}), uniform(-1e4, 1e4))
                    .in(i32({5}), ids(33))
                    .by_rows({0, 1}));
  all.push_back(OpCase("sure", CrossEntropy{})
                    .in(f32({4, 8}), list({50, 0, 0, 0, 0, 0, 0, 0}))
                    .in(i32({4}), list({0, 1})));
  all.push_back(OpCase("masked", CrossEntropy{})
                    .in(f32({4, 5}), list({-INFINITY, 0, 1, 2, 3}))
                    .in(i32({4}), list({1, 0})));
  all.push_back(OpCase("nan", CrossEntropy{})
                    .in(f32({2, 5}), list({0, 1, NAN, 2, 3, 1, 2, 3, 4, 5}))
                    .in(i32({2}), list({1})));
  all.push_back(OpCase("many", CrossEntropy{})
                    .in(f32({67, 1030}), uniform(-6, 6))
                    .in(i32({67}), ids(1030))
                    .by_rows({0, 1}));
  return all;
}

std::vector<OpCase> cases(const CrossEntropyGrad&) {
  std::vector<OpCase> all;
  for (const bool with_loss : {false, true}) {
    const auto add = [&](const std::string& name, const Shape& shape, const Values& logits,
                         const Values& targets) {
      all.push_back(with_loss ? both(name, shape, logits, targets)
                              : backward(name, shape, logits, targets));
    };
    for (const std::int64_t columns : {1, 5, 16, 65}) {
      add("columns_" + std::to_string(columns), Shape(2, 3, columns), uniform(-4, 4),
          ids(static_cast<double>(columns)));
    }
    add("vector", Shape(9), uniform(-4, 4), list({4}));
    add("ignored", Shape(6, 9), uniform(-4, 4), list({1, -1, 3, -100}));
    add("large", Shape(5, 33), uniform(-1e3, 1e3), ids(33));
    add("many", Shape(67, 1030), uniform(-6, 6), ids(1030));
    add("long", Shape(5, 9001), uniform(-6, 6), ids(9001));  // In several parts on a GPU.
  }
  return all;
}

}  // namespace volta::op_test
