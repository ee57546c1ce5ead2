// Operands for kernel tests: typed values in memory of exactly their size, so that a sanitizer sees
// any step beyond the end; and loops over instruction sets.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "attention_fixture.h"
#include "base/parallel.h"
#include "kernels/cpu/cpu.h"
#include "tensor/float16.h"

namespace volta::test {

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Operand {
 public:
  /// Bytes of 0xFF: NaN as floats.
  explicit Operand(const Shape& shape, DType dtype = DType::kF32)
      : shape_(shape),
        dtype_(dtype),
        bytes_(static_cast<std::size_t>(shape.elements() * dtype_size(dtype)), std::byte{0xFF}) {}
  /// f32, bf16 or f16 values.
  Operand(const Shape& shape, const std::vector<float>& values, DType dtype = DType::kF32)
      : Operand(shape, dtype) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::kF32) put(i, values[i]);
      if (dtype == DType::kBF16) put(i, bf16_from_f32(values[i]));
      if (dtype == DType::kF16) put(i, f16_from_f32(values[i]));
    }
  }
  /// Of any other element type.
  template <typename T>
  static Operand of(const Shape& shape, const std::vector<T>& values) {
    Operand made(shape, DTypeOf<T>::value);
    for (std::size_t i = 0; i < values.size(); ++i) made.put(i, values[i]);
    return made;
  }
  static Operand ints(const Shape& shape, const std::vector<std::int32_t>& values) {
    return of(shape, values);
  }

  View view() { return {bytes_.data(), {dtype_, shape_}}; }
  std::size_t size() const { return static_cast<std::size_t>(shape_.elements()); }
  template <typename T = float>
  std::vector<T> values() const {
    std::vector<T> all(size());
    if (!bytes_.empty()) std::memcpy(all.data(), bytes_.data(), bytes_.size());
    return all;
  }
  /// Element i as f32, whatever float it is.
  float operator[](std::size_t i) const {
    if (dtype_ == DType::kF32) return get<float>(i);
    const auto bits = get<std::uint16_t>(i);
    return dtype_ == DType::kBF16 ? f32_from_bf16(bits) : f32_from_f16(bits);
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  template <typename T>
  void put(std::size_t i, T value) {
    std::memcpy(bytes_.data() + i * sizeof(T), &value, sizeof(T));
  }
  template <typename T>
  T get(std::size_t i) const {
    T value;
    std::memcpy(&value, bytes_.data() + i * sizeof(T), sizeof(T));
    return value;
  }

  Shape shape_;
  DType dtype_;
  std::vector<std::byte> bytes_;
};

/// Runs an op; inputs that it writes are changed.
template <typename AnyOp>
void call(const AnyOp& op, const std::vector<Operand*>& inputs,
          const std::vector<Operand*>& outputs, const cpu::Context& context) {
  std::vector<View> in, out;
  for (Operand* operand : inputs) in.push_back(operand->view());
  for (Operand* operand : outputs) out.push_back(operand->view());
  run_op(op, in, out, context);
}

/// Calls fn with a context of every instruction set, on two threads. `bad_index` is 0 at first.
inline void for_each_simd(const std::function<void(const cpu::Context&)>& fn) {
  ThreadPool pool = make_pool(2);
  for (const cpu::Simd simd : available_simd()) {
    SCOPED_TRACE(cpu::simd_name(simd));
    std::atomic<std::int64_t> bad_index = 0;
    fn({simd, &pool, &bad_index});
  }
}

/// |actual - expected| <= relative |expected| + absolute, or both NaN, or both the same infinity.
inline void expect_close(double actual, double expected, double relative, double absolute = 0.0) {
  if (std::isnan(expected) || std::isinf(expected)) {
    EXPECT_TRUE(std::isnan(expected) ? std::isnan(actual) : actual == expected)
        << actual << " instead of " << expected;
    return;
  }
  EXPECT_LE(std::abs(actual - expected), relative * std::abs(expected) + absolute)
      << actual << " instead of " << expected;
}

/// Lengths around every vector width and unrolling, and one that is split over threads.
inline std::vector<std::int64_t> interesting_sizes() {
  std::vector<std::int64_t> sizes;
  for (std::int64_t n = 0; n <= 40; ++n) sizes.push_back(n);
  sizes.insert(sizes.end(), {63, 64, 65, 127, 129, 1000, 40'000});
  return sizes;
}

}  // namespace volta::test
