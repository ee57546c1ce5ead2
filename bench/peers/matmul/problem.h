// One matrix product y[m, n] = a[m, k] b[k, n] to be timed: its sizes, its operands in f32, and the
// check of a result. What multiplies is a Contender; libraries.h makes them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/memory.h"
#include "machine.h"

namespace [[gnu::visibility("default")]] peers {

struct Case {
  std::int64_t m = 0, k = 0, n = 0;
  bool cold = false;  ///< Weights that no cache holds, rather than the same ones every time.

  double ops() const { return 2.0 * static_cast<double>(m * k) * static_cast<double>(n); }
};

/// Memory on large pages, as Volta's tensors have it, so that nobody wins by pages. Ends the
/// program when there is not enough.
class Block {
 public:
  explicit Block(std::int64_t bytes);
  void* data() { return bytes_.data(); }
  std::span<float> floats() {
    return {reinterpret_cast<float*>(bytes_.data()), static_cast<std::size_t>(bytes_.size() / 4)};
  }

 private:
  volta::AlignedBytes bytes_;
};

class Problem {
 public:
  Problem(const Case& its_case, Type its_type);

  const Case& sizes() const { return case_; }
  Type type() const { return type_; }
  /// How many copies of the weights take turns: one when hot.
  std::int64_t copies() const { return copies_; }
  /// f32 in [-0.5, 0.5): a [m, k] and b [k, n], every copy of which is the same.
  std::span<float> a() { return a_.floats(); }
  std::span<float> b() { return b_.floats(); }
  /// Copy i of b as it is, for those who multiply f32 in rows. Made when first asked for.
  std::span<float> plain_copy(std::int64_t i);
  /// Results in f32 [m, n] go here.
  std::span<float> y() { return y_.floats(); }

  /// Whether y = a b, at some places, as far as the type can tell.
  bool right();

 private:
  Case case_;
  Type type_;
  std::int64_t copies_ = 1;
  Block a_, b_, y_;
  std::vector<Block> plain_;
};

/// Calls check(row, column) at some places of y until one is wrong.
bool right_at_samples(const Case& its_case,
                      const std::function<bool(std::int64_t row, std::int64_t column)>& check);

/// A library that has made its own operands of a problem.
struct Contender {
  std::string name;
  bool prepared = false;                       ///< Weights in a form of its own, made before.
  std::function<void(std::int64_t copy)> run;  ///< Multiplies, with this copy of the weights.
  std::function<bool()> right;                 ///< Whether the last product is right.
  std::int64_t weight_bytes = 0;               ///< That a product reads; 0: not told.
};

}  // namespace peers
