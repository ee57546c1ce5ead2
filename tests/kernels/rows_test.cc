// Norm, NormGrad, Softmax, SoftmaxGrad, CrossEntropy, CrossEntropyGrad, Reduce, Expand: against the
// definitions in double at every remainder of a row, in place, with NaN, infinities and bad
// indices.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "operand.h"

namespace volta::test {
namespace {

constexpr DType kFloats[] = {DType::kF32, DType::kBF16, DType::kF16};

std::vector<std::int64_t> row_lengths() {
  std::vector<std::int64_t> lengths;
  for (std::int64_t n = 1; n <= 40; ++n) lengths.push_back(n);
  lengths.insert(lengths.end(), {65, 128, 384, 1001});
  return lengths;
}

std::size_t at(std::int64_t row, std::int64_t column, std::int64_t columns) {
  return static_cast<std::size_t>(row * columns + column);
}

struct Stats {
  double mean = 0.0, rstd = 0.0;
};

Stats stats_of(const Operand& x, std::int64_t row, std::int64_t columns, NormKind kind) {
  const auto n = static_cast<double>(columns);
  Stats stats;
  double squares = 0.0;
  for (std::int64_t c = 0; c < columns; ++c) stats.mean += x[at(row, c, columns)] / n;
  if (kind == NormKind::kRms) stats.mean = 0.0;
  for (std::int64_t c = 0; c < columns; ++c) {
    squares += std::pow(x[at(row, c, columns)] - stats.mean, 2) / n;
  }
  stats.rstd = 1.0 / std::sqrt(squares + 1e-5);
  return stats;
}

// Errors of x - mean and of the sums, relative to the size of x (about 4) and of the results.
constexpr double kRowTolerance = 1e-5;

TEST(Norm, EqualsTheDefinitionForEveryWeightType) {
  constexpr std::int64_t kRows = 5;
  for (const std::int64_t columns : row_lengths()) {
    const auto size = static_cast<std::size_t>(columns);
    Operand x(Shape(kRows, columns), random_values(kRows * size, 1));
    for_each_simd([&](const cpu::Context& context) {
      for (const DType type : kFloats) {
        Operand weight(Shape(columns), random_values(size, 2), type);
        Operand bias(Shape(columns), random_values(size, 3),
                     type == DType::kF16 ? DType::kF32 : type);
        for (const auto& [kind, has_bias] : {std::pair{NormKind::kLayer, true},
                                             {NormKind::kLayer, false},
                                             {NormKind::kRms, false}}) {
          Operand y(Shape(kRows, columns)), stats(Shape(kRows, 2));
          std::vector<Operand*> inputs = {&x, &weight};
          if (has_bias) inputs.push_back(&bias);
          call(Norm{kind, has_bias}, inputs, {&y, &stats}, context);
          for (std::int64_t row = 0; row < kRows; ++row) {
            const Stats expected = stats_of(x, row, columns, kind);
            expect_close(stats[at(row, 0, 2)], expected.mean, 0, 1e-6);
            // One column: the variance is 0, and rounding of x - mean shows against eps.
            expect_close(stats[at(row, 1, 2)], expected.rstd, 1e-5);
            for (std::int64_t c = 0; c < columns; ++c) {
              const std::size_t i = at(row, c, columns), j = static_cast<std::size_t>(c);
              const double h = (x[i] - expected.mean) * expected.rstd;
              expect_close(y[i], h * weight[j] + (has_bias ? bias[j] : 0.0f), kRowTolerance,
                           kRowTolerance * std::abs(weight[j]));
            }
          }
          Operand in_place = x;
          inputs[0] = &in_place;
          call(Norm{kind, has_bias}, inputs, {&in_place, &stats}, context);
          EXPECT_EQ(in_place.bytes(), y.bytes());
        }
      }
    });
  }
}

TEST(Norm, KeepsPrecisionAroundALargeMean) {
  constexpr std::int64_t kColumns = 256;
  std::vector<float> values(kColumns);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = i % 2 == 0 ? 4097.0f : 4095.0f;
  Operand x(Shape(1, kColumns), values);
  Operand weight(Shape(kColumns), std::vector<float>(kColumns, 1.0f));
  for_each_simd([&](const cpu::Context& context) {
    Operand y(Shape(1, kColumns)), stats(Shape(1, 2));
    call(Norm{NormKind::kLayer}, {&x, &weight}, {&y, &stats}, context);
    EXPECT_EQ(stats[0], 4096.0f);
    expect_close(y[0], 1.0 / std::sqrt(1.0 + 1e-5), 1e-6);
    expect_close(y[1], -1.0 / std::sqrt(1.0 + 1e-5), 1e-6);
  });
}

TEST(NormGrad, EqualsTheDefinitionForEveryWeightType) {
  for (const std::int64_t rows : {1, 31, 32, 33, 100}) {
    for (const std::int64_t columns : {1, 2, 5, 16, 17, 33, 64, 130}) {
      const auto size = static_cast<std::size_t>(columns);
      Operand x(Shape(rows, columns), random_values(static_cast<std::size_t>(rows) * size, 1));
      Operand dy(Shape(rows, columns), random_values(static_cast<std::size_t>(rows) * size, 4));
      for_each_simd([&](const cpu::Context& context) {
        for (const DType type : kFloats) {
          Operand weight(Shape(columns), random_values(size, 2), type);
          for (const auto& [kind, has_bias] : {std::pair{NormKind::kLayer, true},
                                               {NormKind::kLayer, false},
                                               {NormKind::kRms, false}}) {
            Operand y(Shape(rows, columns)), stats(Shape(rows, 2)), dx(Shape(rows, columns));
            Operand dweight((Shape(columns))), dbias((Shape(columns)));
            call(Norm{kind}, {&x, &weight}, {&y, &stats}, context);
            std::vector<Operand*> outputs = {&dx, &dweight};
            if (has_bias) outputs.push_back(&dbias);
            call(NormGrad{kind, has_bias}, {&x, &weight, &stats, &dy}, outputs, context);

            std::vector<double> sum_w(size), sum_b(size), size_w(size), size_b(size);
            for (std::int64_t row = 0; row < rows; ++row) {
              const double mean = stats[at(row, 0, 2)], rstd = stats[at(row, 1, 2)];
              double mean_g = 0.0, mean_gh = 0.0;
              for (std::int64_t c = 0; c < columns; ++c) {
                const std::size_t i = at(row, c, columns), j = static_cast<std::size_t>(c);
                const double h = (x[i] - mean) * rstd, upstream = dy[i];
                mean_g += upstream * weight[j] / static_cast<double>(columns);
                mean_gh += upstream * weight[j] * h / static_cast<double>(columns);
                sum_w[j] += upstream * h;
                size_w[j] += std::abs(upstream * h);
                sum_b[j] += upstream;
                size_b[j] += std::abs(upstream);
              }
              if (kind == NormKind::kRms) mean_g = 0.0;
              for (std::int64_t c = 0; c < columns; ++c) {
                const std::size_t i = at(row, c, columns), j = static_cast<std::size_t>(c);
                const double h = (x[i] - mean) * rstd;
                expect_close(dx[i], rstd * (dy[i] * weight[j] - mean_g - h * mean_gh), 0,
                             kRowTolerance * rstd);
              }
            }
            for (std::size_t j = 0; j < size; ++j) {
              expect_close(dweight[j], sum_w[j], 0, 3e-6 * size_w[j]);
              if (has_bias) expect_close(dbias[j], sum_b[j], 0, 3e-6 * size_b[j]);
            }
          }
        }
      });
    }
  }
}

TEST(NormGrad, OfNoRowsIsZero) {
  for_each_simd([](const cpu::Context& context) {
    Operand x(Shape(0, 40)), weight(Shape(40), std::vector<float>(40, 1.0f)), stats(Shape(0, 2));
    Operand dx(Shape(0, 40)), dweight(Shape(40)), dbias(Shape(40));
    call(NormGrad{NormKind::kLayer, true}, {&x, &weight, &stats, &x}, {&dx, &dweight, &dbias},
         context);
    EXPECT_EQ(dweight.values(), std::vector<float>(40, 0.0f));
    EXPECT_EQ(dbias.values(), std::vector<float>(40, 0.0f));
  });
}

TEST(Softmax, EqualsTheDefinitionAndMayWriteOverItsInput) {
  for (const std::int64_t columns : row_lengths()) {
    const std::int64_t rows = columns > 1000 ? 40 : 3;
    const auto size = static_cast<std::size_t>(rows * columns);
    Operand x(Shape(rows, columns), random_values(size, 1, 5.0f));
    Operand dy(Shape(rows, columns), random_values(size, 2));
    for_each_simd([&](const cpu::Context& context) {
      for (const float scale : {1.0f, 0.125f, -0.5f}) {
        Operand y(Shape(rows, columns)), dx(Shape(rows, columns));
        call(Softmax{scale}, {&x}, {&y}, context);
        call(SoftmaxGrad{scale}, {&y, &dy}, {&dx}, context);
        for (std::int64_t row = 0; row < rows; ++row) {
          double sum = 0.0, dot = 0.0, largest = 0.0;
          for (std::int64_t c = 0; c < columns; ++c) {
            const std::size_t i = at(row, c, columns);
            sum += std::exp(static_cast<double>(scale) * x[i]);
            dot += static_cast<double>(y[i]) * dy[i];
            largest = std::max(largest, std::abs(static_cast<double>(dy[i])));
          }
          for (std::int64_t c = 0; c < columns; ++c) {
            const std::size_t i = at(row, c, columns);
            expect_close(y[i], std::exp(static_cast<double>(scale) * x[i]) / sum, 5e-6, 1e-37);
            expect_close(dx[i], scale * y[i] * (dy[i] - dot), 0, 1e-5 * y[i] * largest);
          }
        }
        Operand in_place = x;
        call(Softmax{scale}, {&in_place}, {&in_place}, context);
        EXPECT_EQ(in_place.bytes(), y.bytes());
        Operand over_y = y, over_dy = dy;
        call(SoftmaxGrad{scale}, {&over_y, &dy}, {&over_y}, context);
        call(SoftmaxGrad{scale}, {&y, &over_dy}, {&over_dy}, context);
        EXPECT_EQ(over_y.bytes(), dx.bytes());
        EXPECT_EQ(over_dy.bytes(), dx.bytes());
      }
    });
  }
}

TEST(Softmax, SpreadsNaNOverItsRowOnly) {
  for_each_simd([](const cpu::Context& context) {
    for (const std::size_t bad : {0, 16, 18}) {
      std::vector<float> values(3 * 19, 0.5f);
      values[19 + bad] = kNaN;
      Operand x(Shape(3, 19), values), y(Shape(3, 19));
      call(Softmax{}, {&x}, {&y}, context);
      for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 19 == 1) << i;
    }
    // Masked scores.
    Operand masked(Shape(1, 3), {-kInfinity, 1000.0f, 1000.0f}), y(Shape(1, 3));
    call(Softmax{}, {&masked}, {&y}, context);
    EXPECT_EQ(y.values(), (std::vector<float>{0.0f, 0.5f, 0.5f}));
  });
}

TEST(CrossEntropy, EqualsTheDefinition) {
  for (const std::int64_t classes : row_lengths()) {
    const std::int64_t rows = classes > 1000 ? 40 : 4;
    const auto size = static_cast<std::size_t>(rows * classes);
    Operand logits(Shape(rows, classes), random_values(size, 1, 4.0f));
    std::vector<std::int32_t> wanted;
    for (std::int64_t row = 0; row < rows; ++row) {
      wanted.push_back(row == 2 ? -100 : static_cast<std::int32_t>(row * 7 % classes));
    }
    Operand targets = Operand::ints(Shape(rows), wanted);
    Operand dloss(Shape(rows), random_values(static_cast<std::size_t>(rows), 2));
    for_each_simd([&](const cpu::Context& context) {
      Operand loss((Shape(rows))), lse((Shape(rows))), dlogits(Shape(rows, classes));
      call(CrossEntropy{}, {&logits, &targets}, {&loss, &lse}, context);
      call(CrossEntropyGrad{}, {&logits, &targets, &lse, &dloss}, {&dlogits}, context);
      for (std::int64_t row = 0; row < rows; ++row) {
        const auto r = static_cast<std::size_t>(row);
        double sum = 0.0;
        for (std::int64_t c = 0; c < classes; ++c) {
          sum += std::exp(static_cast<double>(logits[at(row, c, classes)]));
        }
        expect_close(lse[r], std::log(sum), 1e-6, 1e-6);
        const bool ignored = wanted[r] < 0;
        const double expected = ignored ? 0.0 : std::log(sum) - logits[at(row, wanted[r], classes)];
        expect_close(loss[r], expected, 0, ignored ? 0.0 : 2e-6 * (1 + std::abs(std::log(sum))));
        for (std::int64_t c = 0; c < classes; ++c) {
          const std::size_t i = at(row, c, classes);
          const double p = std::exp(logits[i] - static_cast<double>(lse[r]));
          expect_close(dlogits[i], ignored ? 0.0 : dloss[r] * (p - (c == wanted[r] ? 1.0 : 0.0)), 0,
                       ignored ? 0.0 : 3e-6 * std::abs(dloss[r]));
        }
      }
      EXPECT_EQ(*context.bad_index, 0);
      Operand in_place = logits;
      call(CrossEntropyGrad{}, {&in_place, &targets, &lse, &dloss}, {&in_place}, context);
      EXPECT_EQ(in_place.bytes(), dlogits.bytes());
      // Both at once, in place: the same bits.
      Operand both = logits, loss_of_both((Shape(rows)));
      call(CrossEntropyGrad{.with_loss = true}, {&both, &targets, &dloss}, {&both, &loss_of_both},
           context);
      EXPECT_EQ(both.bytes(), dlogits.bytes());
      EXPECT_EQ(loss_of_both.bytes(), loss.bytes());
    });
  }
}

// Rows that are summed in all ways there are: in a few vectors, and in one pass.
constexpr std::int64_t kRowLengths[] = {1, 16, 65, 128, 129, 1000, 9001};

TEST(CrossEntropy, SumsRowsThatGrow) {
  for (const std::int64_t classes : kRowLengths) {
    // To what an element grows at the row's end, in steps that are larger than any other.
    for (const float end : {-3e4f, -90.0f, 1e-3f, 40.0f, 500.0f, 3e4f, 1e9f, 1e36f}) {
      std::vector<float> values;
      for (std::int64_t c = 0; c < classes; ++c) {
        values.push_back(c % 7 == 3 ? -kInfinity : end * static_cast<float>(1 + c / 100));
      }
      double sum = 0.0, top = -kInfinity;
      for (const float v : values) top = std::max(top, static_cast<double>(v));
      for (const float v : values) sum += std::exp(v - top);
      Operand logits(Shape(1, classes), values), targets = Operand::ints(Shape(1), {0});
      for_each_simd([&](const cpu::Context& context) {
        Operand loss((Shape(1))), lse((Shape(1)));
        call(CrossEntropy{}, {&logits, &targets}, {&loss, &lse}, context);
        expect_close(lse[0], top + std::log(sum), 1e-6, 1e-6);
      });
    }
  }
}

TEST(CrossEntropy, ARowOfMaskedClassesIsMinusInfinityAndOneNaNSpoilsARow) {
  for (const std::int64_t classes : kRowLengths) {
    const auto size = static_cast<std::size_t>(classes);
    for (const std::size_t at : {std::size_t{0}, size / 2, size - 1}) {
      std::vector<float> values(5 * size, -kInfinity);
      for (std::size_t c = 0; c < size; ++c) values[c] = values[2 * size + c] = 1.0f;
      values[at] = kNaN;
      values[2 * size + at] = kInfinity;
      values[3 * size + at] = -2.5f;
      values[4 * size + at] = kNaN;
      Operand logits(Shape(5, classes), values);
      Operand targets = Operand::ints(Shape(5), {-1, -1, -1, -1, -1});
      for_each_simd([&](const cpu::Context& context) {
        Operand loss((Shape(5))), lse((Shape(5)));
        call(CrossEntropy{}, {&logits, &targets}, {&loss, &lse}, context);
        EXPECT_TRUE(std::isnan(lse[0]));
        EXPECT_EQ(lse[1], -kInfinity);
        EXPECT_TRUE(std::isnan(lse[2]));
        EXPECT_EQ(lse[3], -2.5f);
        EXPECT_TRUE(std::isnan(lse[4]));
      });
    }
  }
}

TEST(CrossEntropy, ARowsBitsDoNotDependOnTheOthers) {
  constexpr std::int64_t kRows = 37;
  for (const std::int64_t classes : kRowLengths) {
    const auto size = static_cast<std::size_t>(classes);
    const std::vector<float> values = random_values(kRows * size, 5, 30.0f);
    Operand logits(Shape(kRows, classes), values);
    Operand targets = Operand::ints(Shape(kRows), std::vector<std::int32_t>(kRows, 0));
    for_each_simd([&](const cpu::Context& context) {
      Operand loss((Shape(kRows))), lse((Shape(kRows)));
      call(CrossEntropy{}, {&logits, &targets}, {&loss, &lse}, context);
      for (std::size_t row = 0; row < kRows; ++row) {
        const auto first = values.begin() + static_cast<std::ptrdiff_t>(row * size);
        Operand alone(Shape(1, classes), std::vector<float>(first, first + classes));
        Operand target = Operand::ints(Shape(1), {0}), loss1((Shape(1))), lse1((Shape(1)));
        call(CrossEntropy{}, {&alone, &target}, {&loss1, &lse1}, context);
        EXPECT_EQ(lse1[0], lse[row]);
        EXPECT_EQ(loss1[0], loss[row]);
      }
    });
  }
}

TEST(CrossEntropy, ReportsTheFirstTargetBeyondTheVocabulary) {
  Operand logits(Shape(4, 3), std::vector<float>(12, 1.0f));
  Operand targets = Operand::ints(Shape(4), {0, 3, -1, 2'000'000'000});
  Operand dloss(Shape(4), {1, 1, 1, 1});
  for_each_simd([&](const cpu::Context& context) {
    Operand loss((Shape(4))), lse((Shape(4))), dlogits(Shape(4, 3));
    call(CrossEntropy{}, {&logits, &targets}, {&loss, &lse}, context);
    EXPECT_EQ(*context.bad_index, 2);
    EXPECT_EQ(loss[1], 0.0f);
    EXPECT_EQ(loss[3], 0.0f);
    *context.bad_index = 0;
    call(CrossEntropyGrad{}, {&logits, &targets, &lse, &dloss}, {&dlogits}, context);
    EXPECT_EQ(*context.bad_index, 2);
    for (std::size_t i = 3; i < 12; ++i) EXPECT_EQ(dlogits[i], 0.0f);
  });
}

TEST(CrossEntropy, ToleratesAMissingStatusWord) {
  ThreadPool pool = make_pool(1);
  Operand logits(Shape(1, 2), {0, 0}), targets = Operand::ints(Shape(1), {5});
  Operand loss((Shape(1))), lse((Shape(1)));
  call(CrossEntropy{}, {&logits, &targets}, {&loss, &lse},
       cpu::Context{cpu::Simd::kSse4, &pool, nullptr});
  EXPECT_EQ(loss[0], 0.0f);
}

TEST(CrossEntropy, NaNAndLargeLogits) {
  Operand logits(Shape(3, 2), {kNaN, 0.0f, 3e38f, -3e38f, -kInfinity, 7.0f});
  Operand targets = Operand::ints(Shape(3), {1, 0, 1});
  for_each_simd([&](const cpu::Context& context) {
    Operand loss((Shape(3))), lse((Shape(3)));
    call(CrossEntropy{}, {&logits, &targets}, {&loss, &lse}, context);
    EXPECT_TRUE(std::isnan(loss[0]));
    EXPECT_EQ(loss[1], 0.0f);
    EXPECT_EQ(loss[2], 0.0f);
  });
}

double fold(ReduceKind kind, const std::vector<double>& values) {
  if (kind == ReduceKind::kMax) {
    return values.empty() ? -kInfinity : *std::max_element(values.begin(), values.end());
  }
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return kind == ReduceKind::kSum ? sum : sum / static_cast<double>(values.size());
}

TEST(Reduce, FoldsAnyRunOfAxes) {
  struct Case {
    Shape x;
    std::int32_t begin, end;
  };
  std::vector<Case> cases = {
      {Shape(2, 3, 4, 5), 1, 3}, {Shape(2, 3, 4, 5), 0, 4}, {Shape(7, 300), 0, 1},
      {Shape(300, 70), 0, 1},    {Shape(40'000), 0, 1},     {Shape(3, 20'000), 1, 2},
      {Shape(1000, 257), 0, 1},  {Shape(2, 300, 65), 1, 2}, {Shape(0, 4), 0, 1},
      {Shape(4, 0), 1, 2},       {Shape(4, 0), 0, 1},       {Shape(5, 1), 1, 2}};
  for (std::int64_t n = 1; n <= 40; ++n) {
    cases.push_back({Shape(3, n), 1, 2});
    cases.push_back({Shape(3, n), 0, 1});
  }
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::Message() << c.x[0] << " " << c.x[1] << " axes " << c.begin << c.end);
    Operand x(c.x, random_values(static_cast<std::size_t>(c.x.elements()), 1));
    const std::int64_t outer = c.x.product(0, c.begin), length = c.x.product(c.begin, c.end);
    const std::int64_t inner = c.x.product(c.end, c.x.rank());
    for_each_simd([&](const cpu::Context& context) {
      for (const ReduceKind kind : {ReduceKind::kSum, ReduceKind::kMean, ReduceKind::kMax}) {
        Operand y(Shape(outer, inner));
        call(Reduce{kind, c.begin, c.end}, {&x}, {&y}, context);
        for (std::int64_t o = 0; o < outer; ++o) {
          for (std::int64_t i = 0; i < inner; ++i) {
            std::vector<double> values;
            double size = 0.0;
            for (std::int64_t r = 0; r < length; ++r) {
              values.push_back(x[static_cast<std::size_t>((o * length + r) * inner + i)]);
              size += std::abs(values.back());
            }
            if (kind == ReduceKind::kMean && length > 0) size /= static_cast<double>(length);
            expect_close(y[static_cast<std::size_t>(o * inner + i)], fold(kind, values), 0,
                         kind == ReduceKind::kMax ? 0.0 : 5e-6 * size);
          }
        }
      }
    });
  }
}

TEST(Reduce, MaxIsNaNWhereverANaNIs) {
  for_each_simd([](const cpu::Context& context) {
    for (std::size_t bad = 0; bad < 37; ++bad) {
      std::vector<float> values(37);
      for (std::size_t i = 0; i < 37; ++i) values[i] = static_cast<float>((i * 5) % 37);
      values[bad] = kNaN;
      Operand x(Shape(37), values), row((Shape())), columns(Shape(37, 1), values), y((Shape(1)));
      call(Reduce{ReduceKind::kMax, 0, 1}, {&x}, {&row}, context);
      EXPECT_TRUE(std::isnan(row[0])) << bad;
      Operand wide(Shape(2, 37), [&] {
        std::vector<float> two(74, 50.0f);
        std::copy(values.begin(), values.end(), two.begin() + (bad % 2 == 0 ? 0 : 37));
        return two;
      }());
      Operand max((Shape(37)));
      call(Reduce{ReduceKind::kMax, 0, 1}, {&wide}, {&max}, context);
      for (std::size_t i = 0; i < 37; ++i) EXPECT_EQ(std::isnan(max[i]), i == bad);
    }
  });
}

TEST(Expand, RepeatsAlongAddedAxes) {
  struct Case {
    Shape shape;
    std::int16_t begin;
    Shape x;
  };
  const std::vector<Case> cases = {
      {Shape(3, 4, 5), 1, Shape(3, 5)},    {Shape(3, 4, 5), 2, Shape(3, 4)},
      {Shape(3, 4, 5), 0, Shape(5)},       {Shape(3, 4, 5), 0, Shape()},
      {Shape(3, 4, 5), 1, Shape(3, 4, 5)}, {Shape(200, 300), 1, Shape(200)},
      {Shape(200, 300), 0, Shape(300)}};
  for (const Case& c : cases) {
    Operand x(c.x, random_values(static_cast<std::size_t>(c.x.elements()), 1));
    const int added = c.shape.rank() - c.x.rank();
    const auto repeat = static_cast<std::size_t>(c.shape.product(c.begin, c.begin + added));
    const auto inner = static_cast<std::size_t>(c.shape.product(c.begin + added, c.shape.rank()));
    for_each_simd([&](const cpu::Context& context) {
      Operand y(c.shape);
      call(Expand{c.shape, c.begin, 0.25f}, {&x}, {&y}, context);
      for (std::size_t i = 0; i < y.size(); ++i) {
        ASSERT_EQ(y[i], 0.25f * x[i / (repeat * inner) * inner + i % inner]) << i;
      }
    });
  }
}

}  // namespace
}  // namespace volta::test
