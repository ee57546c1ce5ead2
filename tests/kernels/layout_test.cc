// Reshape, Permute, Slice, Pad, Cast, Embedding, EmbeddingGrad, Rope: every element's
// place, all element sizes, bad indices.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "operand.h"

namespace volta::test {
namespace {

template <typename T>
Operand counted(const Shape& shape) {
  std::vector<T> values(static_cast<std::size_t>(shape.elements()));
  std::iota(values.begin(), values.end(), T{1});
  return Operand::of(shape, values);
}

TEST(Reshape, CopiesUnlessTheMemoryIsOne) {
  for_each_simd([](const cpu::Context& context) {
    Operand x = counted<std::int64_t>(Shape(100, 200)), y(Shape(200, 100), DType::kI64);
    call(Reshape{Shape(200, 100)}, {&x}, {&y}, context);
    EXPECT_EQ(x.bytes(), y.bytes());
    call(Reshape{Shape(200, 100)}, {&x}, {&x}, context);
    EXPECT_EQ(x.bytes(), y.bytes());
  });
}

template <typename T>
void expect_permuted(const Shape& shape, const std::array<std::int8_t, kMaxRank>& perm,
                     const cpu::Context& context) {
  Operand x = counted<T>(shape);
  Shape to;
  for (int i = 0; i < shape.rank(); ++i) to.push_back(shape[perm[static_cast<std::size_t>(i)]]);
  Operand y(to, DTypeOf<T>::value);
  call(Permute{perm}, {&x}, {&y}, context);
  const auto from = x.values<T>(), moved = y.values<T>();
  for (std::int64_t i = 0; i < to.elements(); ++i) {
    std::int64_t source = 0;
    for (int axis = 0; axis < to.rank(); ++axis) {
      const std::int64_t coordinate = i / to.product(axis + 1, to.rank()) % to[axis];
      const int in = perm[static_cast<std::size_t>(axis)];
      source += coordinate * shape.product(in + 1, shape.rank());
    }
    ASSERT_EQ(moved[static_cast<std::size_t>(i)], from[static_cast<std::size_t>(source)]) << i;
  }
}

TEST(Permute, MovesEveryElementOfEverySize) {
  struct Case {
    Shape shape;
    std::array<std::int8_t, kMaxRank> perm;
  };
  const std::vector<Case> cases = {{Shape(), {}},
                                   {Shape(5), {0}},
                                   {Shape(3, 4), {1, 0}},
                                   {Shape(1, 1, 1), {2, 0, 1}},
                                   {Shape(70, 300), {1, 0}},
                                   {Shape(2, 3, 4, 5), {0, 2, 1, 3}},
                                   {Shape(2, 3, 4, 5), {3, 2, 1, 0}},
                                   {Shape(2, 3, 4, 5), {2, 3, 0, 1}},
                                   {Shape(2, 1, 3, 1, 4, 5), {5, 3, 4, 0, 1, 2}},
                                   {Shape(2, 3, 4), {0, 1, 2}},
                                   {Shape(2, 0, 4), {2, 0, 1}},
                                   {Shape(2, 0, 4), {0, 2, 1}}};
  for_each_simd([&](const cpu::Context& context) {
    for (const Case& c : cases) {
      expect_permuted<std::uint8_t>(c.shape, c.perm, context);
      expect_permuted<std::int32_t>(c.shape, c.perm, context);
      expect_permuted<std::int64_t>(c.shape, c.perm, context);
    }
    Operand x(Shape(2, 3), {1, 2, 3, 4, 5, 6}, DType::kBF16), y(Shape(3, 2), DType::kBF16);
    call(Permute{{1, 0}}, {&x}, {&y}, context);
    for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(y[i], x[i % 2 * 3 + i / 2]);
  });
}

TEST(SliceAndPad, AreInverse) {
  const Shape shape(4, 5, 6);
  for_each_simd([&](const cpu::Context& context) {
    for (const int axis : {0, 1, 2}) {
      Operand x = counted<std::int32_t>(shape);
      Shape cut = shape;
      cut.set(axis, 2);
      Operand y(cut, DType::kI32), padded(shape, DType::kI32);
      call(Slice{axis, 1, 2}, {&x}, {&y}, context);
      call(Pad{axis, 1, shape[axis] - 3}, {&y}, {&padded}, context);
      const auto all = x.values<std::int32_t>(), back = padded.values<std::int32_t>();
      for (std::int64_t i = 0; i < shape.elements(); ++i) {
        const std::int64_t coordinate = i / shape.product(axis + 1, shape.rank()) % shape[axis];
        const bool inside = coordinate >= 1 && coordinate < 3;
        EXPECT_EQ(back[static_cast<std::size_t>(i)], inside ? all[static_cast<std::size_t>(i)] : 0);
      }
    }
  });
}

constexpr DType kFloats[] = {DType::kF32, DType::kBF16, DType::kF16};

TEST(Cast, RoundsBetweenFloats) {
  std::vector<float> values = random_values(20'000, 1, 100.0f);
  values.insert(values.end(), {0.0f, -0.0f, kInfinity, -kInfinity, kNaN, 65519.9f, 65520.0f, 1e-7f,
                               6e-8f, 2.98e-8f, 1e-40f, 3.4e38f, 1.00390625f, 1.01171875f});
  const auto n = static_cast<std::int64_t>(values.size());
  for_each_simd([&](const cpu::Context& context) {
    for (const DType from : kFloats) {
      Operand x(Shape(n), values, from);
      for (const DType to : kFloats) {
        Operand y(Shape(n), to);
        call(Cast{to}, {&x}, {&y}, context);
        std::vector<float> exact(values.size());
        for (std::size_t i = 0; i < exact.size(); ++i) exact[i] = x[i];
        const Operand expected(Shape(n), exact, to);
        for (std::size_t i = 0; i < exact.size(); ++i) {
          if (std::isnan(expected[i])) {
            EXPECT_TRUE(std::isnan(y[i])) << i;
          } else {
            ASSERT_EQ(std::signbit(y[i]), std::signbit(expected[i])) << i;
            ASSERT_EQ(y[i], expected[i]) << i << " " << exact[i];
          }
        }
        if (dtype_size(from) == dtype_size(to)) {
          Operand in_place = x;
          View as_from = in_place.view(), as_to = in_place.view();
          as_to.dtype = to;
          run_op(Cast{to}, std::vector{as_from}, std::vector{as_to}, context);
          EXPECT_EQ(in_place.bytes(), y.bytes());
        }
      }
    }
  });
}

TEST(Cast, HandlesEveryRemainder) {
  for_each_simd([](const cpu::Context& context) {
    for (std::int64_t n = 0; n <= 40; ++n) {
      Operand x(Shape(n), random_values(static_cast<std::size_t>(n), 1)), y(Shape(n), DType::kBF16);
      Operand back((Shape(n))), half(Shape(n), DType::kF16);
      call(Cast{DType::kBF16}, {&x}, {&y}, context);
      call(Cast{DType::kF32}, {&y}, {&back}, context);
      call(Cast{DType::kF16}, {&x}, {&half}, context);
      for (std::size_t i = 0; i < x.size(); ++i) {
        EXPECT_EQ(back[i], f32_from_bf16(bf16_from_f32(x[i])));
        EXPECT_EQ(half[i], f32_from_f16(f16_from_f32(x[i])));
      }
    }
  });
}

template <typename T>
void expect_integer_casts(const cpu::Context& context, T lowest, T highest) {
  Operand x(Shape(8), {0.9f, -0.9f, 100.5f, -100.5f, 1e30f, -1e30f, kNaN, 7.0f});
  Operand y(Shape(8), DTypeOf<T>::value);
  call(Cast{DTypeOf<T>::value}, {&x}, {&y}, context);
  const T minus_hundred = lowest == 0 ? T{0} : static_cast<T>(-100);
  EXPECT_EQ(y.values<T>(), (std::vector<T>{0, 0, 100, minus_hundred, highest, lowest, 0, 7}));
  Operand integers = Operand::of<T>(Shape(3), {lowest, highest, 5}), floats((Shape(3)));
  call(Cast{DType::kF32}, {&integers}, {&floats}, context);
  EXPECT_EQ(floats.values(),
            (std::vector<float>{static_cast<float>(lowest), static_cast<float>(highest), 5.0f}));
}

TEST(Cast, ClampsToIntegers) {
  for_each_simd([](const cpu::Context& context) {
    expect_integer_casts<std::int8_t>(context, -128, 127);
    expect_integer_casts<std::uint8_t>(context, 0, 255);
    expect_integer_casts<std::int32_t>(context, INT32_MIN, INT32_MAX);
    expect_integer_casts<std::int64_t>(context, INT64_MIN, INT64_MAX);
    Operand x(Shape(3), {1.5f, -2.5f, 300.0f});
    View as_ints = x.view();
    as_ints.dtype = DType::kI32;
    run_op(Cast{DType::kI32}, std::vector{x.view()}, std::vector{as_ints}, context);
    EXPECT_EQ(x.values<std::int32_t>(), (std::vector<std::int32_t>{1, -2, 300}));
  });
}

TEST(Embedding, ReadsRowsOfEveryType) {
  for_each_simd([](const cpu::Context& context) {
    for (const DType type : kFloats) {
      Operand table(Shape(4, 3), random_values(12, 1), type), y(Shape(2, 2, 3));
      Operand ids = Operand::ints(Shape(2, 2), {3, 0, 4, -1});
      *context.bad_index = 0;
      call(Embedding{}, {&table, &ids}, {&y}, context);
      EXPECT_EQ(*context.bad_index, 3);
      for (std::size_t c = 0; c < 3; ++c) {
        EXPECT_EQ(y[c], table[9 + c]);
        EXPECT_EQ(y[3 + c], table[c]);
        EXPECT_EQ(y[6 + c], 0.0f);
        EXPECT_EQ(y[9 + c], 0.0f);
      }
    }
  });
}

TEST(EmbeddingGrad, AddsRowsInOrder) {
  constexpr std::int64_t kIds = 500, kRows = 7, kColumns = 70;
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < kIds; ++i) ids.push_back(i * i % 9);  // 7 does not occur, 8 is bad.
  Operand id = Operand::ints(Shape(kIds), ids);
  Operand dy(Shape(kIds, kColumns), random_values(kIds * kColumns, 1));
  std::vector<float> expected(kRows * kColumns, 0.0f);
  std::int64_t first_bad = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= kRows) {
      if (first_bad == 0) first_bad = static_cast<std::int64_t>(i) + 1;
      continue;
    }
    for (std::size_t c = 0; c < kColumns; ++c) {
      expected[static_cast<std::size_t>(ids[i]) * kColumns + c] += dy[i * kColumns + c];
    }
  }
  for_each_simd([&](const cpu::Context& context) {
    Operand dtable(Shape(kRows, kColumns));
    call(EmbeddingGrad{kRows}, {&id, &dy}, {&dtable}, context);
    EXPECT_EQ(dtable.values(), expected);
    EXPECT_EQ(*context.bad_index, first_bad);
  });
}

// The angle of pair i at position t: t * 10000^(-2 i / rotary).
Operand rope_table(std::int64_t positions, std::int64_t rotary) {
  std::vector<float> table;
  for (std::int64_t t = 0; t < positions; ++t) {
    for (const bool sine : {false, true}) {
      for (std::int64_t i = 0; i < rotary / 2; ++i) {
        const double angle =
            static_cast<double>(t) *
            std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(rotary));
        table.push_back(static_cast<float>(sine ? std::sin(angle) : std::cos(angle)));
      }
    }
  }
  return {Shape(positions, rotary), table};
}

TEST(Rope, TurnsPairsForwardsAndBack) {
  constexpr std::int64_t kTime = 5;
  for (const std::int32_t head_dim : {2, 6, 16, 34, 64, 80}) {
    for (const std::int64_t rotary : {std::int64_t{head_dim}, std::int64_t{head_dim / 4 * 2}}) {
      if (rotary == 0) continue;
      const std::int64_t columns = 3 * head_dim;  // Two heads are turned, one is copied.
      Operand x(Shape(2, kTime, columns),
                random_values(static_cast<std::size_t>(2 * kTime * columns), 1));
      Operand positions = Operand::ints(Shape(kTime), {0, 3, 1, 9, 4});
      Operand table = rope_table(10, rotary);
      for_each_simd([&](const cpu::Context& context) {
        for (const bool interleaved : {false, true}) {
          Operand y(Shape(2, kTime, columns)), back(Shape(2, kTime, columns));
          const Rope op{2, head_dim, interleaved, false};
          call(op, {&x, &positions, &table}, {&y}, context);
          for (std::int64_t i = 0; i < x.view().shape.elements(); ++i) {
            const std::int64_t column = i % columns, element = column % head_dim;
            const std::int64_t half = rotary / 2;
            const auto position = static_cast<std::int64_t>(
                std::array{0, 3, 1, 9, 4}[static_cast<std::size_t>(i / columns % kTime)]);
            const auto here = static_cast<std::size_t>(i);
            if (column >= 2 * head_dim || element >= rotary) {
              EXPECT_EQ(y[here], x[here]);
              continue;
            }
            const std::int64_t pair = interleaved ? element / 2 : element % half;
            const bool first = interleaved ? element % 2 == 0 : element < half;
            const std::int64_t other = i + (first ? 1 : -1) * (interleaved ? 1 : half);
            const double cosine = table[static_cast<std::size_t>(position * rotary + pair)];
            const double sine = table[static_cast<std::size_t>(position * rotary + half + pair)];
            const double mine = x[here], others = x[static_cast<std::size_t>(other)];
            expect_close(y[here], mine * cosine + (first ? -others : others) * sine, 0,
                         3e-7 * (std::abs(mine) + std::abs(others)));
          }
          Rope inverse = op;
          inverse.inverse = true;
          call(inverse, {&y, &positions, &table}, {&back}, context);
          for (std::size_t i = 0; i < x.size(); ++i) expect_close(back[i], x[i], 0, 3e-6);
          Operand in_place = x;
          call(op, {&in_place, &positions, &table}, {&in_place}, context);
          EXPECT_EQ(in_place.bytes(), y.bytes());
          EXPECT_EQ(*context.bad_index, 0);
        }
      });
    }
  }
}

TEST(Rope, ReportsPositionsOutsideTheTable) {
  for_each_simd([](const cpu::Context& context) {
    Operand x(Shape(2, 3, 4), random_values(24, 1)), y(Shape(2, 3, 4));
    Operand positions = Operand::ints(Shape(3), {1, 2, -1}), table = rope_table(2, 4);
    call(Rope{1, 4}, {&x, &positions, &table}, {&y}, context);
    EXPECT_EQ(*context.bad_index, 2);
    for (const std::size_t row : {1, 2, 4, 5}) {
      for (std::size_t c = 0; c < 4; ++c) EXPECT_EQ(y[row * 4 + c], 0.0f);
    }
    EXPECT_NE(y[12], 0.0f);
  });
}

}  // namespace
}  // namespace volta::test
