// Attention in double: over whole sequences, its backward pass, and over a cache.
//
// Bounds. A score is a dot product of head_dim terms, scaled: off by e_s = gamma(head_dim + 2) of
// its size. A weight p = exp(s - lse) is off, relative to itself, by twice the largest e_s of the
// row (numerator and denominator), the rounding of the exponents, kExp twice, and the sum over the
// keys; a soft cap c tanh(s / c) has a slope of at most 1, so that it carries e_s over, and adds
// what tanh and four roundings are off; the online softmax rescales the running sums once a block
// of keys, which a few roundings a key cover. What is summed with these weights adds gamma of the
// number of keys. Attention on operands of 16 bits may round each weight p to their type before it
// is multiplied by a value v: that moves p by at most half a unit in its last place (2^-8 p in
// bf16, 2^-11 p in f16), and the sum over the keys by at most the sum of that times |v|.
// In the backward pass the gradient of a score may be rounded in the same way before it enters a
// sum, at the size that the number and its error allow.
#include <algorithm>
#include <functional>
#include <limits>

#include "ops/reference/reference.h"
#include "tensor/float16.h"

namespace volta::reference {

namespace {

constexpr double kU = kUnit;
// Weights this small next to the largest may be any number from 0 to this: kernels need not tell
// exponents below -87 apart.
constexpr double kFloor = 0x1p-125;

// Where the heads of q, k and v lie: element d of head h of row t of sequence b.
struct Heads {
  const Array* array;
  std::int64_t time, width, first;
  std::int32_t dim;

  std::int64_t index(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t d) const {
    return (b * time + t) * width + first + h * dim + d;
  }
  double at(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t d) const {
    return (*array)[index(b, t, h, d)];
  }
};

struct Qkv {
  Heads q, k, v;
};

Heads heads_of(const Array& array, std::int64_t first, std::int32_t dim) {
  return {&array, array.spec.shape[1], array.spec.shape[2], first, dim};
}

Qkv qkv_of(const AttentionShape& shape, const std::vector<Array>& in) {
  const std::int64_t q = shape.heads * shape.head_dim, kv = shape.kv_heads * shape.head_dim;
  if (!shape.packed) {
    return {heads_of(in[0], 0, shape.head_dim), heads_of(in[1], 0, shape.head_dim),
            heads_of(in[2], 0, shape.head_dim)};
  }
  return {heads_of(in[0], 0, shape.head_dim), heads_of(in[0], q, shape.head_dim),
          heads_of(in[0], q + kv, shape.head_dim)};
}

// The weights of one row over the keys [first, first + p.size()).
struct Row {
  std::int64_t first = 0;
  std::vector<double> p;
  double lse = 0.0, lse_error = 0.0;
  double weight_error = 0.0;  ///< Of a weight, relative.
  /// Of the soft cap at each key's score, and its error; 1 without one.
  std::vector<Bounded> slope;
};

using Element = std::function<double(std::int64_t key, std::int64_t d)>;

// The score of a dot product; adds the slope of the soft cap there.
Bounded capped(const AttentionShape& shape, const Sum& dot, std::vector<Bounded>& slopes) {
  constexpr double kTanh = 6 * kU;
  const auto scale = static_cast<double>(shape.scale), cap = static_cast<double>(shape.softcap);
  const Bounded s = {scale * dot.value(), std::abs(scale) * dot.bounded(2).error};
  if (cap == 0.0) {
    slopes.push_back({1.0, 0.0});
    return s;
  }
  const double t = std::tanh(s.value / cap);
  // Of tanh(s / cap): what s is off, the inverse of the cap and the product with it.
  const double t_error =
      s.error / cap + (1 - t * t) * 2 * kU * std::abs(s.value / cap) + kTanh * std::abs(t);
  slopes.push_back({1 - t * t, 2 * std::abs(t) * t_error + t_error * t_error + 2 * kU});
  return {cap * t, cap * t_error + kU * std::abs(cap * t)};
}

// The row at `position`, which sees no later keys; see sequence_row() for rows that are not causal.
Row softmax_row(const AttentionShape& shape, std::int64_t position,
                const std::function<double(std::int64_t)>& q, const Element& k) {
  Row row;
  row.first = shape.window > 0 ? std::max<std::int64_t>(0, position - shape.window + 1) : 0;
  double largest = -std::numeric_limits<double>::infinity(), score_error = 0.0, exponent = 0.0;
  for (std::int64_t j = row.first; j <= position; ++j) {
    Sum dot;
    for (std::int64_t d = 0; d < shape.head_dim; ++d) dot.add(q(d) * k(j, d));
    const Bounded s = capped(shape, dot, row.slope);
    row.p.push_back(s.value);
    largest = std::max(largest, s.value);
    score_error = std::max(score_error, s.error);
  }
  double sum = 0.0;
  for (double& s : row.p) {
    exponent = std::max(exponent, kU * std::min(std::abs(s - largest), 104.0));
    s = std::exp(s - largest);
    sum += s;
  }
  for (double& p : row.p) p /= sum;
  const auto keys = static_cast<std::int64_t>(row.p.size());
  row.lse = largest + std::log(sum);
  row.lse_error = score_error + exponent + kExp + gamma(keys + 8) +
                  4 * kU * std::abs(std::log(sum)) + kU * std::abs(row.lse);
  row.weight_error = 2 * (score_error + exponent + kExp) + gamma(keys + 16);
  return row;
}

// The row of query head h at time t of sequence b, over keys of the same sequence.
Row sequence_row(const AttentionShape& shape, const Qkv& qkv, std::int64_t b, std::int64_t t,
                 std::int64_t h) {
  const std::int64_t kv = h / (shape.heads / shape.kv_heads);
  const std::int64_t last = shape.causal ? t : qkv.k.time - 1;
  return softmax_row(
      shape, last, [&](std::int64_t d) { return qkv.q.at(b, t, h, d); },
      [&](std::int64_t j, std::int64_t d) { return qkv.k.at(b, j, kv, d); });
}

// Calls fn(b, t, h) for every query row.
void for_each_row(const AttentionShape& shape, const Array& rows,
                  const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& fn) {
  for (std::int64_t b = 0; b < rows.spec.shape[0]; ++b) {
    for (std::int64_t t = 0; t < rows.spec.shape[1]; ++t) {
      for (std::int64_t h = 0; h < shape.heads; ++h) fn(b, t, h);
    }
  }
}

// The dropout factors of the weights [B, heads, T, T]; ones without dropout.
class Factors {
 public:
  Factors(float dropout, std::uint32_t stream, const Array& rng, const AttentionShape& shape,
          std::int64_t time)
      : p_(dropout), stream_(stream), rng_(rng), heads_(shape.heads), time_(time) {}
  double at(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t j) const {
    if (p_ <= 0) return 1.0;
    return dropout_factor(rng_, stream_, p_, ((b * heads_ + h) * time_ + t) * time_ + j);
  }

 private:
  float p_;
  std::uint32_t stream_;
  const Array& rng_;
  std::int64_t heads_, time_;
};

// The row of `y` that `weights` (with their dropout factors) make of the values. The weights may be
// rounded to `type` before.
void mix_values(const Row& row, DType type, const std::function<double(std::int64_t)>& factor,
                const Element& v, std::int32_t dim,
                const std::function<void(std::int64_t, double, double)>& store) {
  for (std::int64_t d = 0; d < dim; ++d) {
    Sum sum;
    double floor = 0.0, rounding = 0.0;
    for (std::size_t n = 0; n < row.p.size(); ++n) {
      const std::int64_t j = row.first + static_cast<std::int64_t>(n);
      const double value = v(j, d), dropped = factor(j);
      sum.add(row.p[n] * dropped * value);
      floor += kFloor * std::abs(value);
      // What is rounded is off by weight_error already.
      rounding +=
          rounding_bound(type, row.p[n] * (1 + row.weight_error)) * dropped * std::abs(value);
    }
    const Bounded y = sum.bounded(4);
    store(d, y.value, y.error + row.weight_error * sum.size() + rounding + 2 * floor);
  }
}

}  // namespace

void compute(const Attention& op, Call& call) {
  const AttentionShape& shape = op.shape;
  const Qkv qkv = qkv_of(shape, call.in);
  const std::int64_t time = call.in[0].spec.shape[1];
  const Factors factors(op.dropout, op.stream, call.in.back(), shape, time);
  const Heads out = heads_of(call.out[0], 0, shape.head_dim);
  for_each_row(shape, call.in[0], [&](std::int64_t b, std::int64_t t, std::int64_t h) {
    const Row row = sequence_row(shape, qkv, b, t, h);
    call.out[1].set((b * shape.heads + h) * time + t, row.lse, row.lse_error);
    const std::int64_t kv = h / (shape.heads / shape.kv_heads);
    mix_values(
        row, call.out[0].spec.dtype, [&](std::int64_t j) { return factors.at(b, h, t, j); },
        [&](std::int64_t j, std::int64_t d) { return qkv.v.at(b, j, kv, d); }, shape.head_dim,
        [&](std::int64_t d, double y, double error) {
          call.out[0].set(out.index(b, t, h, d), y, error);
        });
  });
}

// dP = dY V^T (with dropout factors), D = sum(P dP) = sum(Y dY), dS = scale P (dP - D),
// dQ = dS K, dK = dS^T Q, dV = P^T dY.
void compute(const AttentionGrad& op, Call& call) {
  const AttentionShape& shape = op.shape;
  const Qkv qkv = qkv_of(shape, call.in);
  const std::size_t sequences = shape.packed ? 1 : 3;
  const std::int64_t time = call.in[0].spec.shape[1];
  const Factors factors(op.dropout, op.stream, call.in.back(), shape, time);
  const Heads y = heads_of(call.in[sequences], 0, shape.head_dim);
  const DType type = call.in[sequences].spec.dtype;
  const Heads dy = heads_of(call.in[sequences + 2], 0, shape.head_dim);
  const Qkv grad = qkv_of(shape, call.out);
  std::vector<std::vector<Sum>> sums;
  for (const Array& out : call.out) sums.emplace_back(out.data.size());
  const auto sum_at = [&](std::size_t which, std::int64_t index) -> Sum& {
    return sums[shape.packed ? 0 : which][static_cast<std::size_t>(index)];
  };
  const double scale = shape.scale;
  for_each_row(shape, call.in[0], [&](std::int64_t b, std::int64_t t, std::int64_t h) {
    const std::int64_t kv = h / (shape.heads / shape.kv_heads);
    const Row row = sequence_row(shape, qkv, b, t, h);
    // exp(s - lse) takes the lse it is given: half of the error of a normalised weight, and lse's.
    const double p_error = row.weight_error + row.lse_error;
    std::vector<Bounded> dp;
    Sum delta;
    for (std::size_t n = 0; n < row.p.size(); ++n) {
      const std::int64_t j = row.first + static_cast<std::int64_t>(n);
      const double factor = factors.at(b, h, t, j);
      Sum sum;
      for (std::int64_t d = 0; d < shape.head_dim; ++d) {
        sum.add(factor * dy.at(b, t, h, d) * qkv.v.at(b, j, kv, d));
      }
      dp.push_back(sum.bounded(4));
      // D may be taken from y and dy: cancellation within a key's dot product is then lost.
      const double size = (row.p[n] + kFloor) * sum.size();
      delta.add(row.p[n] * dp.back().value,
                (row.weight_error + gamma(shape.head_dim + 8)) * size + row.p[n] * dp.back().error);
    }
    Bounded d_row = delta.bounded(4);
    // Taken from y and dy it inherits y's own rounding to 16 bits.
    for (std::int64_t d = 0; d < shape.head_dim; ++d) {
      const double rounding = rounding_bound(type, y.at(b, t, h, d) * (1 + 0x1p-7));
      d_row.error += std::abs(dy.at(b, t, h, d)) * rounding;
    }
    for (std::size_t n = 0; n < row.p.size(); ++n) {
      const std::int64_t j = row.first + static_cast<std::int64_t>(n);
      const double p = row.p[n], dropped = p * factors.at(b, h, t, j);
      const double slope = row.slope[n].value;
      const double inner = dp[n].value - d_row.value, ds = scale * p * inner * slope;
      const double size = std::abs(dp[n].value) + std::abs(d_row.value);
      const double unscaled_error =
          slope * (p * (dp[n].error + d_row.error) + (p * (p_error + 4 * kU) + kFloor) * size) +
          row.slope[n].error * (p + kFloor) * (size + dp[n].error + d_row.error);
      const double ds_error =
          std::abs(scale) *
          (unscaled_error + rounding_bound(type, std::abs(p * inner * slope) + unscaled_error));
      // The dropout factor, 0 or more than 1, may come before the rounding or after it.
      const double dropped_error =
          (p_error + 3 * kU) * dropped + 2 * kFloor +
          factors.at(b, h, t, j) * rounding_bound(type, p * (1 + p_error) + kFloor);
      for (std::int64_t d = 0; d < shape.head_dim; ++d) {
        const double q = qkv.q.at(b, t, h, d), k = qkv.k.at(b, j, kv, d), g = dy.at(b, t, h, d);
        sum_at(0, grad.q.index(b, t, h, d)).add(ds * k, ds_error * std::abs(k));
        sum_at(1, grad.k.index(b, j, kv, d)).add(ds * q, ds_error * std::abs(q));
        sum_at(2, grad.v.index(b, j, kv, d)).add(dropped * g, dropped_error * std::abs(g));
      }
    }
  });
  for (std::size_t out = 0; out < call.out.size(); ++out) {
    for (std::int64_t i = 0; i < call.out[out].size(); ++i) {
      const Bounded sum = sums[out][static_cast<std::size_t>(i)].bounded(4);
      call.out[out].set(i, sum.value, sum.error);
    }
  }
}

namespace {

// Rounds to the type of a cache.
double rounded(double x, DType dtype) {
  const auto value = static_cast<float>(x);
  if (dtype == DType::kBF16) return f32_from_bf16(bf16_from_f32(value));
  if (dtype == DType::kF16) return f32_from_f16(f16_from_f32(value));
  return value;
}

// The heads of rows of tokens, [N, width].
Heads token_heads(const Array& array, std::int64_t first, std::int32_t dim) {
  return {&array, array.spec.shape[0], array.spec.shape[1], first, dim};
}

// What follows the caches in the inputs of both ops.
struct Paged {
  const Array& positions;
  const Array& sequences;
  const Array& rows;
  const Array& table;

  std::int64_t count() const { return static_cast<std::int64_t>(rows[0]); }
  std::int64_t position(std::int64_t row) const {
    return static_cast<std::int64_t>(positions[row]);
  }
  // Where element d of head h of position p of a row's sequence lies in a cache of keys
  // [P, heads, head_dim, 64] or of values [P, heads, 64, head_dim].
  std::int64_t index(const Shape& cache, bool keys, std::int64_t row, std::int64_t h,
                     std::int64_t p, std::int64_t d) const {
    const auto sequence = static_cast<std::int64_t>(sequences[row]);
    const auto page =
        static_cast<std::int64_t>(table[sequence * table.spec.shape[1] + p / kAttentionKeyBlock]);
    const std::int64_t head = page * cache[1] + h, place = p % kAttentionKeyBlock;
    return (head * cache[2] + (keys ? d : place)) * cache[3] + (keys ? place : d);
  }
};

Paged paged_of(const Call& call, std::size_t caches) {
  return {call.in[caches + 2], call.in[caches + 3], call.in[caches + 4], call.in[caches + 5]};
}

}  // namespace

void compute(const KvAppend& op, Call& call) {
  const AttentionShape& shape = op.shape;
  const std::size_t first = shape.packed ? 1 : 2;
  const std::int64_t q = shape.heads * shape.head_dim, kv = shape.kv_heads * shape.head_dim;
  const Heads rows[2] = {
      token_heads(call.in[0], shape.packed ? q : 0, shape.head_dim),
      token_heads(call.in[first - 1], shape.packed ? q + kv : 0, shape.head_dim)};
  const Paged paged = paged_of(call, first);
  for (std::size_t which = 0; which < 2; ++which) {
    Array& cache = call.in[first + which];
    for (std::int64_t row = 0; row < paged.count(); ++row) {
      for (std::int64_t i = 0; i < kv; ++i) {
        const std::int64_t h = i / shape.head_dim, d = i % shape.head_dim;
        cache[paged.index(cache.spec.shape, which == 0, row, h, paged.position(row), d)] =
            rounded(rows[which].at(0, row, h, d), cache.spec.dtype);
      }
    }
  }
}

void compute(const CachedAttention& op, Call& call) {
  const AttentionShape& shape = op.shape;
  const Heads q = token_heads(call.in[0], 0, shape.head_dim);
  const Heads out = token_heads(call.out[0], 0, shape.head_dim);
  const Paged paged = paged_of(call, 1);
  const DType cache_type = call.in[1].spec.dtype;
  const DType weight_type = call.in[0].spec.dtype == cache_type ? cache_type : DType::kF32;
  for (std::int64_t row = 0; row < paged.count(); ++row) {
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      const std::int64_t kv = h / (shape.heads / shape.kv_heads);
      const auto element = [&](const Array& cache, bool keys) {
        return [&cache, &paged, keys, row, kv](std::int64_t j, std::int64_t d) {
          return cache[paged.index(cache.spec.shape, keys, row, kv, j, d)];
        };
      };
      const Row weights = softmax_row(
          shape, paged.position(row), [&](std::int64_t d) { return q.at(0, row, h, d); },
          element(call.in[1], true));
      mix_values(
          weights, weight_type, [](std::int64_t) { return 1.0; }, element(call.in[2], false),
          shape.head_dim,
          [&](std::int64_t d, double y, double error) {
            call.out[0].set(out.index(0, row, h, d), y, error);
          });
    }
  }
}

}  // namespace volta::reference
