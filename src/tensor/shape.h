// Shape: up to six dimensions held inline. C++20-clean, so that kernels of every backend can use
// it.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>

namespace [[gnu::visibility("default")]] volta {

/// The largest rank a tensor can have.
inline constexpr int kMaxRank = 6;

/// The dimensions of a tensor, outermost first, in row-major order. Rank 0 is a scalar.
/// Shapes from untrusted data must be made by make_shape (tensor/spec.h), which checks them.
class Shape {
 public:
  constexpr Shape() = default;
  template <std::convertible_to<std::int64_t>... Dims>
    requires(sizeof...(Dims) >= 1 && sizeof...(Dims) <= kMaxRank)
  constexpr explicit(sizeof...(Dims) == 1) Shape(Dims... dims)
      : dims_{static_cast<std::int64_t>(dims)...}, rank_(sizeof...(Dims)) {}

  constexpr int rank() const { return rank_; }

  /// Dimension `axis`; a negative axis counts from the end (-1 is the last). The dimension of an
  /// axis outside the rank is 1, so that callers may read it before they check the rank.
  constexpr std::int64_t operator[](int axis) const {
    const int i = axis < 0 ? axis + rank_ : axis;
    return i >= 0 && i < rank_ ? dims_[static_cast<std::size_t>(i)] : 1;
  }
  /// Replaces dimension `axis` (negative counts from the end); outside the rank nothing happens.
  constexpr void set(int axis, std::int64_t value) {
    const int i = axis < 0 ? axis + rank_ : axis;
    if (i >= 0 && i < rank_) dims_[static_cast<std::size_t>(i)] = value;
  }
  /// Appends a dimension; false when the rank is already kMaxRank.
  constexpr bool push_back(std::int64_t value) {
    if (rank_ >= kMaxRank) return false;
    dims_[static_cast<std::size_t>(rank_++)] = value;
    return true;
  }

  /// The product of dimensions [begin, end); 1 when the range is empty.
  constexpr std::int64_t product(int begin, int end) const {
    std::int64_t n = 1;
    for (int i = begin; i < end; ++i) n *= (*this)[i];
    return n;
  }
  /// The number of elements.
  constexpr std::int64_t elements() const { return product(0, rank_); }
  /// The length of the last axis (1 for a scalar).
  constexpr std::int64_t columns() const { return rank_ == 0 ? 1 : (*this)[-1]; }
  /// The number of rows when every axis but the last is flattened (1 for ranks 0 and 1).
  constexpr std::int64_t rows() const { return rank_ == 0 ? 1 : product(0, rank_ - 1); }

  friend constexpr bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i) {
      if (a[i] != b[i]) return false;
    }
    return true;
  }

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

}  // namespace volta
