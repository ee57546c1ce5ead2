// Cases of Cast. Its gradient passes straight through the rounding (rules_test.cc): there are no
// differences to compare it with.
#include <cmath>

#include "ops/op_case.h"

namespace volta::op_test {

std::vector<OpCase> cases(const Cast&) {
  std::vector<OpCase> all;
  constexpr DType kFloats[] = {DType::kF32, DType::kBF16, DType::kF16};
  constexpr DType kIntegers[] = {DType::kI8, DType::kU8, DType::kI32, DType::kI64};
  // Ties, the ends of every range, subnormals of f16, numbers that no i32 holds.
  const std::vector<double> extremes = {
      0,         1.00390625, 1.01171875,   65504,         65519,     65520,   -65536,
      3e38,      1e-40,      0x1p-24,      0x1p-25,       0x1.8p-25, NAN,     INFINITY,
      -INFINITY, 1.5,        -1.5,         127.9,         128,       -129,    255.5,
      256,       2147483520, 2147483648.0, -2147483904.0, 9.3e18,    -9.3e18, 0.99,
      -0.99};
  for (const DType from : kFloats) {
    for (const DType to : kFloats) {
      const std::string name = std::string(dtype_name(from)) + "_to_" + std::string(dtype_name(to));
      OpCase c(name, Cast{to});
      c = std::move(c).in({from, Shape(5, 37)}, uniform(-100, 100)).by_rows({0});
      all.push_back(std::move(c));
      all.push_back(OpCase(name + "_extremes", Cast{to}).in({from, Shape(61)}, list(extremes)));
    }
  }
  for (const DType integer : kIntegers) {
    const std::string name(dtype_name(integer));
    all.push_back(OpCase("f32_to_" + name, Cast{integer}).in(f32({61}), list(extremes)));
    all.push_back(OpCase(name + "_to_f32", Cast{DType::kF32})
                      .in({integer, Shape(7, 19)}, ids(integer == DType::kI8 ? 127 : 255))
                      .by_rows({0}));
  }
  all.push_back(OpCase("i64_rounds", Cast{DType::kF32})
                    .in(i64({4}), list({16777217, 16777219, -16777217, 1099511627777.0})));
  all.push_back(OpCase("many", Cast{DType::kBF16}).in(f32({70001})));
  return all;
}

}  // namespace volta::op_test
