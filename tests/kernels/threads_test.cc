// The same bits on any number of threads: every kernel that splits work, on sizes that are split.
// And what instruction sets agree on.
#include <gtest/gtest.h>

#include <functional>

#include "operand.h"

namespace volta::test {
namespace {

// One call: makes its operands, runs, and returns the bytes of everything written.
using Call = std::function<std::vector<std::byte>(const cpu::Context&)>;

struct Case {
  std::string name;
  Call call;
};

template <typename AnyOp>
Case make_case(const AnyOp& op, std::vector<Operand> inputs, std::vector<Operand> outputs) {
  const auto run = [=](const cpu::Context& context) {
    std::vector<Operand> in = inputs, out = outputs;
    std::vector<Operand*> in_pointers, out_pointers;
    for (Operand& operand : in) in_pointers.push_back(&operand);
    for (Operand& operand : out) out_pointers.push_back(&operand);
    call(op, in_pointers, out_pointers, context);
    std::vector<std::byte> all;
    for (const auto* list : {&in, &out}) {
      for (const Operand& operand : *list) {
        all.insert(all.end(), operand.bytes().begin(), operand.bytes().end());
      }
    }
    return all;
  };
  return {std::string(op_name(Op(op))), run};
}

Operand random(const Shape& shape, std::uint32_t stream) {
  return {shape, random_values(static_cast<std::size_t>(shape.elements()), stream)};
}

Operand indices(const Shape& shape, std::int32_t below) {
  std::vector<std::int32_t> values;
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    values.push_back(static_cast<std::int32_t>(i * 31 % below));
  }
  return Operand::ints(shape, values);
}

std::vector<Case> cases() {
  const Shape wide(700, 193), row(193), rows(700), line(200'001);
  const Operand x = random(wide, 1), y = random(wide, 2), long_x = random(line, 3);
  const Operand weight = random(row, 4), stats = [] {
    std::vector<float> values = random_values(1400, 5);
    for (float& v : values) v = std::abs(v) + 0.1f;
    return Operand(Shape(700, 2), values);
  }();
  const Operand rng = Operand::of<std::int64_t>(Shape(2), {11, 12});
  const Operand schedule(Shape(3), {0.1f, 0.5f, 0.5f}), finite(Shape(3), {1.0f, 0.5f, 1.0f});
  return {
      make_case(Unary{UnaryKind::kGelu}, {long_x}, {Operand(line)}),
      make_case(UnaryGrad{UnaryKind::kSilu}, {x, y}, {Operand(wide)}),
      make_case(Binary{BinaryKind::kMul}, {x, weight}, {Operand(wide)}),
      make_case(Reduce{ReduceKind::kSum, 0, 1}, {x}, {Operand(row)}),
      make_case(Reduce{ReduceKind::kSum, 0, 2}, {x}, {Operand(Shape())}),
      make_case(Reduce{ReduceKind::kMean, 1, 2}, {x}, {Operand(rows)}),
      make_case(Reduce{ReduceKind::kMax, 0, 1}, {long_x}, {Operand(Shape())}),
      make_case(Expand{wide, 0, 2.0f}, {weight}, {Operand(wide)}),
      make_case(Reshape{Shape(193, 700)}, {x}, {Operand(Shape(193, 700))}),
      make_case(Permute{{1, 0}}, {x}, {Operand(Shape(193, 700))}),
      make_case(Slice{1, 3, 100}, {x}, {Operand(Shape(700, 100))}),
      make_case(Pad{1, 3, 4}, {x}, {Operand(Shape(700, 200))}),
      make_case(Cast{DType::kBF16}, {long_x}, {Operand(line, DType::kBF16)}),
      make_case(Embedding{}, {x, indices(Shape(900), 700)}, {Operand(Shape(900, 193))}),
      make_case(EmbeddingGrad{50}, {indices(rows, 60), x}, {Operand(Shape(50, 193))}),
      make_case(Norm{NormKind::kLayer}, {x, weight}, {Operand(wide), Operand(Shape(700, 2))}),
      make_case(NormGrad{NormKind::kLayer, true}, {x, weight, stats, y},
                {Operand(wide), Operand(row), Operand(row)}),
      make_case(GatedUnit{}, {x, y}, {Operand(wide)}),
      make_case(GatedUnitGrad{Activation::kGelu}, {x, y, x}, {Operand(wide), Operand(wide)}),
      make_case(Softmax{0.5f}, {x}, {Operand(wide)}),
      make_case(SoftmaxGrad{0.5f}, {x, y}, {Operand(wide)}),
      make_case(Rope{1, 100}, {x, indices(rows, 30), random(Shape(30, 64), 6)}, {Operand(wide)}),
      make_case(CrossEntropy{}, {x, indices(rows, 200)}, {Operand(rows), Operand(rows)}),
      make_case(CrossEntropyGrad{}, {x, indices(rows, 200), random(rows, 7), random(rows, 8)},
                {Operand(wide)}),
      make_case(CrossEntropyGrad{.with_loss = true}, {x, indices(rows, 200), random(rows, 8)},
                {Operand(wide), Operand(rows)}),
      make_case(Dropout{0.2f, 9}, {long_x, rng}, {Operand(line)}),
      make_case(GlobalNorm{1.0f}, {random(Shape(1), 1), long_x, x, weight}, {Operand(Shape(3))}),
      make_case(
          AdamW{},
          {x, y, y, Operand(wide, std::vector<float>(wide.elements(), 0.5f)), schedule, finite},
          {}),
      make_case(Sgd{0.5f}, {x, y, x, schedule, finite}, {}),
      make_case(Accumulate{0.3f}, {x, y}, {}),
      make_case(Fill{3.0f}, {x}, {}),
      make_case(Argmax{}, {x}, {Operand(rows, DType::kI32)}),
  };
}

TEST(Threads, DoNotChangeABit) {
  for (const Case& c : cases()) {
    for (const cpu::Simd simd : available_simd()) {
      SCOPED_TRACE(c.name + " " + cpu::simd_name(simd));
      std::atomic<std::int64_t> first_bad = 0;
      ThreadPool one = make_pool(1);
      const std::vector<std::byte> expected = c.call({simd, &one, &first_bad});
      for (const int threads : {2, 3, 7}) {
        ThreadPool pool = make_pool(threads);
        std::atomic<std::int64_t> bad = 0;
        EXPECT_EQ(c.call({simd, &pool, &bad}), expected) << threads;
        EXPECT_EQ(bad, first_bad) << threads;
      }
    }
  }
}

// A row's result does not depend on how many rows are computed with it.
TEST(Rows, DoNotDependOnTheirNumber) {
  constexpr std::int64_t kColumns = 83;
  const Operand all = random(Shape(9, kColumns), 1), weight = random(Shape(kColumns), 2);
  for_each_simd([&](const cpu::Context& context) {
    const auto results = [&](std::int64_t first, std::int64_t rows) {
      const std::vector<float> values = all.values();
      Operand x(Shape(rows, kColumns),
                std::vector<float>(values.begin() + first * kColumns,
                                   values.begin() + (first + rows) * kColumns));
      Operand normed(Shape(rows, kColumns)), soft(Shape(rows, kColumns)), stats(Shape(rows, 2));
      Operand w = weight, loss((Shape(rows))), lse((Shape(rows)));
      Operand targets =
          Operand::ints(Shape(rows), std::vector<std::int32_t>(static_cast<std::size_t>(rows), 7));
      call(Norm{NormKind::kRms}, {&x, &w}, {&normed, &stats}, context);
      call(Softmax{}, {&x}, {&soft}, context);
      call(CrossEntropy{}, {&x, &targets}, {&loss, &lse}, context);
      std::vector<float> last;  // Of the last row.
      for (const Operand* y : {&normed, &soft, &loss, &lse}) {
        const std::vector<float> rows_of = y->values();
        const auto width = static_cast<std::ptrdiff_t>(rows_of.size()) / rows;
        last.insert(last.end(), rows_of.end() - width, rows_of.end());
      }
      return last;
    };
    EXPECT_EQ(results(0, 9), results(8, 1));
    EXPECT_EQ(results(5, 4), results(8, 1));
  });
}

}  // namespace
}  // namespace volta::test
