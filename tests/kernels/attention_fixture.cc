// The reference of the attention tests: the definition of the op in double, [time, time] and all.
#include "attention_fixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "support/random.h"

namespace volta::test {

namespace {

constexpr double kUnit = 0x1p-24;  // The relative error of one rounding of f32.

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

// One head of one batch entry: where its rows begin in q, k and v.
struct Head {
  const AttentionCase& c;
  const Qkv& x;
  std::int64_t b, h;

  std::size_t q(std::int64_t i) const {
    return index(((b * c.time + i) * c.heads + h) * c.head_dim);
  }
  std::size_t kv(std::int64_t j) const {
    return index(((b * c.time + j) * c.kv_heads + h / c.group()) * c.head_dim);
  }
  std::int64_t first_key(std::int64_t i) const {
    return c.window > 0 ? std::max<std::int64_t>(0, i - c.window + 1) : 0;
  }
};

// What a row's softmax looks like.
struct Row {
  std::vector<double> p;  // From first_key on.
  double lse = 0.0;
  double score_error = 0.0;  // Absolute, of any scaled score.
};

Row softmax_row(const Head& head, std::int64_t i) {
  const AttentionCase& c = head.c;
  const double scale = c.shape().scale;
  Row row;
  double max = -INFINITY;
  for (std::int64_t j = head.first_key(i); j <= i; ++j) {
    double s = 0.0, size = 0.0;
    for (std::int32_t d = 0; d < c.head_dim; ++d) {
      const double product = static_cast<double>(head.x.q[head.q(i) + index(d)]) *
                             static_cast<double>(head.x.k[head.kv(j) + index(d)]);
      s += product;
      size += std::abs(product);
    }
    row.p.push_back(scale * s);
    max = std::max(max, scale * s);
    // head_dim products and sums, the scale, and the subtraction of a maximum of like size.
    row.score_error = std::max(row.score_error, (c.head_dim + 4) * kUnit * std::abs(scale) * size);
  }
  double sum = 0.0;
  for (double& p : row.p) sum += p = std::exp(p - max);
  for (double& p : row.p) p /= sum;
  row.lse = max + std::log(sum);
  return row;
}

// The relative error of a weight: its score, the row's other scores, exp (2 ulp) and the sums.
double weight_error(const Row& row) {
  return 2 * row.score_error + (8 + static_cast<double>(row.p.size())) * kUnit;
}

}  // namespace

AttentionShape AttentionCase::shape() const {
  return {.heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .window = window,
          .scale = scale != 0.0f ? scale : 1.0f / std::sqrt(static_cast<float>(head_dim)),
          .packed = packed};
}

std::string AttentionCase::name() const {
  return "B=" + std::to_string(batch) + " T=" + std::to_string(time) +
         " H=" + std::to_string(heads) + "/" + std::to_string(kv_heads) +
         " D=" + std::to_string(head_dim) + " window=" + std::to_string(window) +
         (packed ? " packed" : "") + " dropout=" + std::to_string(dropout);
}

std::vector<float> random_values(std::size_t count, std::uint32_t stream, float spread) {
  RandomSequence random({.seed = 99, .stream = stream, .step = 0});
  std::vector<float> values(count);
  for (float& v : values) v = spread * static_cast<float>(next_normal(random));
  return values;
}

Qkv random_qkv(const AttentionCase& c, std::uint32_t stream) {
  const std::size_t rows = index(c.batch * c.time * c.head_dim);
  return {random_values(rows * index(c.heads), 10 * stream),
          random_values(rows * index(c.kv_heads), 10 * stream + 1),
          random_values(rows * index(c.kv_heads), 10 * stream + 2)};
}

std::vector<float> pack_qkv(const AttentionCase& c, const Qkv& qkv) {
  std::vector<float> packed;
  const std::int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  for (std::int64_t r = 0; r < c.batch * c.time; ++r) {
    packed.insert(packed.end(), qkv.q.begin() + r * q, qkv.q.begin() + (r + 1) * q);
    packed.insert(packed.end(), qkv.k.begin() + r * kv, qkv.k.begin() + (r + 1) * kv);
    packed.insert(packed.end(), qkv.v.begin() + r * kv, qkv.v.begin() + (r + 1) * kv);
  }
  return packed;
}

Qkv unpack_qkv(const AttentionCase& c, const std::vector<float>& packed) {
  Qkv qkv;
  const std::int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  for (std::int64_t r = 0; r < c.batch * c.time; ++r) {
    const auto row = packed.begin() + r * (q + 2 * kv);
    qkv.q.insert(qkv.q.end(), row, row + q);
    qkv.k.insert(qkv.k.end(), row + q, row + q + kv);
    qkv.v.insert(qkv.v.end(), row + q + kv, row + q + 2 * kv);
  }
  return qkv;
}

View view_of(std::vector<float>& values, const Shape& shape) {
  return {values.data(), {DType::kF32, shape}};
}
View view_of(std::vector<std::int32_t>& values, const Shape& shape) {
  return {values.data(), {DType::kI32, shape}};
}
View view_of(std::vector<std::int64_t>& values, const Shape& shape) {
  return {values.data(), {DType::kI64, shape}};
}

std::vector<cpu::Simd> available_simd() {
  std::vector<cpu::Simd> all;
  for (const cpu::Simd simd : cpu::kAllSimd) {
    if (cpu::simd_available(simd)) all.push_back(simd);
  }
  return all;
}

std::string simd_label(cpu::Simd simd) {
  std::string label = cpu::simd_name(simd);
  std::ranges::replace(label, '-', '_');
  return label;
}

ThreadPool make_pool(int threads) { return ThreadPool::create(threads).value(); }

namespace {

Shape rows_shape(const AttentionCase& c, std::int64_t heads) {
  return Shape(c.batch, c.time, heads * c.head_dim);
}

// Views of q, k, v: one packed (in `packed`) or three.
std::vector<View> qkv_inputs(const AttentionCase& c, Qkv& qkv, std::vector<float>& packed) {
  if (c.packed) {
    packed = pack_qkv(c, qkv);
    return {view_of(packed, rows_shape(c, c.heads + 2 * c.kv_heads))};
  }
  return {view_of(qkv.q, rows_shape(c, c.heads)), view_of(qkv.k, rows_shape(c, c.kv_heads)),
          view_of(qkv.v, rows_shape(c, c.kv_heads))};
}

}  // namespace

AttentionResult run_attention(const AttentionCase& c, const Qkv& qkv, const cpu::Context& context) {
  Qkv in = qkv;
  std::vector<float> packed;
  std::vector<View> inputs = qkv_inputs(c, in, packed);
  std::vector<std::int64_t> rng = {kTestSeed, kTestStep};
  if (c.dropout > 0) inputs.push_back(view_of(rng, Shape(2)));
  AttentionResult out;
  out.y.assign(in.q.size(), NAN);
  out.lse.assign(index(c.batch * c.heads * c.time), NAN);
  run_op(
      Attention{c.shape(), c.dropout, kTestStream}, inputs,
      {view_of(out.y, rows_shape(c, c.heads)), view_of(out.lse, Shape(c.batch, c.heads, c.time))},
      context);
  return out;
}

Qkv run_attention_grad(const AttentionCase& c, const Qkv& qkv, const AttentionResult& forward,
                       const std::vector<float>& dy, const cpu::Context& context) {
  Qkv in = qkv;
  AttentionResult saved = forward;
  std::vector<float> dy_copy = dy, packed, out_packed(in.q.size() + in.k.size() + in.v.size(), NAN);
  std::vector<View> inputs = qkv_inputs(c, in, packed);
  inputs.push_back(view_of(saved.y, rows_shape(c, c.heads)));
  inputs.push_back(view_of(saved.lse, Shape(c.batch, c.heads, c.time)));
  inputs.push_back(view_of(dy_copy, rows_shape(c, c.heads)));
  std::vector<std::int64_t> rng = {kTestSeed, kTestStep};
  if (c.dropout > 0) inputs.push_back(view_of(rng, Shape(2)));
  Qkv out = {std::vector<float>(in.q.size(), NAN), std::vector<float>(in.k.size(), NAN),
             std::vector<float>(in.v.size(), NAN)};
  std::vector<View> outputs;
  if (c.packed) {
    outputs = {view_of(out_packed, rows_shape(c, c.heads + 2 * c.kv_heads))};
  } else {
    outputs = {view_of(out.q, rows_shape(c, c.heads)), view_of(out.k, rows_shape(c, c.kv_heads)),
               view_of(out.v, rows_shape(c, c.kv_heads))};
  }
  run_op(AttentionGrad{c.shape(), c.dropout, kTestStream}, inputs, outputs, context);
  return c.packed ? unpack_qkv(c, out_packed) : out;
}

double dropout_factor(const AttentionCase& c, std::int64_t b, std::int64_t h, std::int64_t i,
                      std::int64_t j) {
  if (c.dropout <= 0) return 1.0;
  const std::int64_t element = ((b * c.heads + h) * c.time + i) * c.time + j;
  const float uniform = uniform_float(
      random_bits_at(static_cast<std::uint64_t>(kTestSeed), kTestStream,
                     static_cast<std::uint32_t>(kTestStep), static_cast<std::uint64_t>(element)));
  return uniform >= c.dropout ? 1.0 / (1.0 - static_cast<double>(c.dropout)) : 0.0;
}

ReferenceResult reference_attention(const AttentionCase& c, const Qkv& qkv) {
  ReferenceResult out;
  out.y.resize(qkv.q.size());
  out.lse.resize(index(c.batch * c.heads * c.time));
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t h = 0; h < c.heads; ++h) {
      const Head head{c, qkv, b, h};
      for (std::int64_t i = 0; i < c.time; ++i) {
        const Row row = softmax_row(head, i);
        out.lse[index((b * c.heads + h) * c.time + i)] = {
            row.lse, row.score_error + weight_error(row) + 4 * kUnit * (1 + std::abs(row.lse))};
        for (std::int32_t d = 0; d < c.head_dim; ++d) {
          double sum = 0.0, size = 0.0;
          for (std::int64_t j = head.first_key(i); j <= i; ++j) {
            const double term = row.p[index(j - head.first_key(i))] *
                                dropout_factor(c, b, h, i, j) *
                                static_cast<double>(qkv.v[head.kv(j) + index(d)]);
            sum += term;
            size += std::abs(term);
          }
          const double error = 2 * weight_error(row) + (static_cast<double>(i) + 8) * kUnit;
          out.y[head.q(i) + index(d)] = {sum, error * size};
        }
      }
    }
  }
  return out;
}

ReferenceGradients reference_gradients(const AttentionCase& c, const Qkv& qkv,
                                       const std::vector<float>& dy) {
  ReferenceGradients out;
  out.dq.resize(qkv.q.size());
  out.dk.resize(qkv.k.size());
  out.dv.resize(qkv.v.size());
  const double scale = c.shape().scale;
  // The rounding of the sums over rows, keys and heads.
  const double sums = static_cast<double>(c.time * c.group() + 8) * kUnit;
  const auto add = [&](Bounded& to, double value, double error) {
    to.value += value;
    to.bound += error + sums * std::abs(value);
  };
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t h = 0; h < c.heads; ++h) {
      const Head head{c, qkv, b, h};
      for (std::int64_t i = 0; i < c.time; ++i) {
        const Row row = softmax_row(head, i);
        const std::int64_t first = head.first_key(i);
        // exp(s - lse): the error of lse, which is rounded to f32 as well.
        const double p_error = 2 * weight_error(row) + 4 * kUnit * (1 + std::abs(row.lse));
        std::vector<double> dp(row.p.size()), dp_size(row.p.size());
        double delta = 0.0, delta_size = 0.0;
        for (std::int64_t j = first; j <= i; ++j) {
          const std::size_t n = index(j - first);
          const double factor = dropout_factor(c, b, h, i, j);
          for (std::int32_t d = 0; d < c.head_dim; ++d) {
            const double term = factor * static_cast<double>(dy[head.q(i) + index(d)]) *
                                static_cast<double>(qkv.v[head.kv(j) + index(d)]);
            dp[n] += term;
            dp_size[n] += std::abs(term);
          }
          delta += row.p[n] * dp[n];
          delta_size += row.p[n] * dp_size[n];
        }
        for (std::int64_t j = first; j <= i; ++j) {
          const std::size_t n = index(j - first);
          const double weight = row.p[n] * dropout_factor(c, b, h, i, j);
          const double ds = scale * row.p[n] * (dp[n] - delta);
          const double ds_error =
              scale * row.p[n] *
              ((p_error + (c.head_dim + 4) * kUnit) * (dp_size[n] + delta_size) +
               (2 * weight_error(row) + static_cast<double>(i + 8) * kUnit) * delta_size);
          for (std::int32_t d = 0; d < c.head_dim; ++d) {
            const std::size_t at_q = head.q(i) + index(d), at_k = head.kv(j) + index(d);
            const double q = static_cast<double>(qkv.q[at_q]);
            const double k = static_cast<double>(qkv.k[at_k]);
            const double g = static_cast<double>(dy[at_q]);
            add(out.dv[at_k], weight * g, p_error * std::abs(weight * g));
            add(out.dq[at_q], ds * k, ds_error * std::abs(k));
            add(out.dk[at_k], ds * q, ds_error * std::abs(q));
          }
        }
      }
    }
  }
  return out;
}

void expect_near(const std::vector<float>& actual, const std::vector<Bounded>& expected,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_LE(std::abs(static_cast<double>(actual[i]) - expected[i].value),
              expected[i].bound + 1e-37)
        << what << " [" << i << "]: " << actual[i] << " instead of " << expected[i].value;
  }
}

}  // namespace volta::test
