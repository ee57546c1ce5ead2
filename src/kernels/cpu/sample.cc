// Argmax and Sample: from logits to tokens. A row's token depends only on that row.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/arithmetic.h"
#include "base/rng.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sample.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/log_sum_exp-inl.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {

// The first of the largest elements; the first NaN if there is one.
std::int64_t argmax(const float* x, std::int64_t n) {
  const float largest = max(n, x);
  const bool is_nan = largest != largest;
  for (std::int64_t i = 0; i < n; ++i) {
    if (is_nan ? x[i] != x[i] : x[i] == largest) return i;
  }
  return 0;
}

// x = (x - top) / temperature and p = exp(x). Subtracting first keeps x finite for a tiny
// temperature.
void tempered(float* x, float top, float temperature, float* p, std::int64_t n) {
  const F32 d;
  const V32 shift = hn::Set(d, top), divisor = hn::Set(d, temperature);
  transform(n, x, [&](V32 v) HWY_ATTR { return hn::Div(hn::Sub(v, shift), divisor); }, x);
  transform(n, p, [&](V32 v) HWY_ATTR { return exp(d, v); }, x);
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {
namespace {

// The stream of Sample in the Philox counter: no op of a graph has it.
constexpr std::uint32_t kSampleStream = 0xFFFFFFFFu;

// A row of Sample's `params`.
struct Params {
  float temperature, top_k, top_p, min_p, repetition, frequency, presence;
};

// One worker's scratch, with an entry per token.
struct Scratch {
  float* logits;        // First penalised, then also divided by the temperature.
  float* weights;       // Not normalised: the largest is 1.
  std::int32_t* order;  // Tokens; the likelier ones first as far as they are sorted.
};

constexpr std::int64_t kScratchBytes = 12;  // Bytes per token.

// Orders tokens from likely to unlikely, and equally likely ones by index. This is a strict order
// of all tokens, so that the set that a filter keeps does not depend on how it was found.
struct LikelierThan {
  const float* logits;
  bool operator()(std::int32_t a, std::int32_t b) const {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  }
};

// `counts` are the counts of the prompt, then those of the output.
void penalise(const float* logits, const std::int32_t* counts, const Params& p, float* out,
              std::int64_t n) {
  std::copy_n(logits, n, out);
  const std::int32_t* prompt = counts;
  const std::int32_t* output = counts + n;
  if (p.repetition != 1.0f) {
    for (std::int64_t i = 0; i < n; ++i) {
      if (prompt[i] <= 0 && output[i] <= 0) continue;
      out[i] = out[i] > 0.0f ? out[i] / p.repetition : out[i] * p.repetition;
    }
  }
  if (p.frequency != 0.0f || p.presence != 0.0f) {
    for (std::int64_t i = 0; i < n; ++i) {
      if (output[i] > 0) out[i] -= p.frequency * static_cast<float>(output[i]) + p.presence;
    }
  }
}

// The last token of the smallest set of likeliest tokens that holds `share` of the weight of
// order[0, n). Sorts only as far as needed, because the set is usually small.
std::int32_t last_of_share(const Scratch& scratch, const LikelierThan& likelier, std::int64_t n,
                           float share) {
  std::int32_t* order = scratch.order;
  double total = 0.0;
  for (std::int64_t i = 0; i < n; ++i) total += static_cast<double>(scratch.weights[order[i]]);
  const double wanted = static_cast<double>(share) * total;
  double sum = 0.0;
  std::int64_t sorted = 0;
  for (std::int64_t next = 64;; next *= 4) {
    const std::int64_t end = std::min(n, next);
    if (end < n) std::nth_element(order + sorted, order + end, order + n, likelier);
    std::sort(order + sorted, order + end, likelier);
    for (; sorted < end; ++sorted) {
      sum += static_cast<double>(scratch.weights[order[sorted]]);
      if (sum >= wanted || sorted + 1 == n) return order[sorted];
    }
  }
}

// Sets the weights of the tokens that the filters drop to zero.
void filter(const Params& params, const Scratch& scratch, std::int64_t n) {
  const LikelierThan likelier{scratch.logits};
  std::int32_t* order = scratch.order;
  const bool top_k = params.top_k >= 1.0f && params.top_k < static_cast<float>(n);
  const bool top_p = params.top_p < 1.0f;
  if (top_k || top_p) {
    std::iota(order, order + n, 0);
    const std::int64_t candidates = top_k ? static_cast<std::int64_t>(params.top_k) : n;
    if (top_k) std::nth_element(order, order + candidates - 1, order + n, likelier);
    const std::int32_t last =
        top_p ? last_of_share(scratch, likelier, candidates, params.top_p) : order[candidates - 1];
    for (std::int32_t i = 0; i < n; ++i) {
      if (likelier(last, i)) scratch.weights[i] = 0.0f;
    }
  }
  const float least = std::min(params.min_p, 1.0f);  // The largest weight is 1, so that it stays.
  for (std::int64_t i = 0; i < n; ++i) {
    if (scratch.weights[i] < least) scratch.weights[i] = 0.0f;
  }
}

// The token at `uniform` in [0, 1) of the cumulative weights, which are in the order of the tokens.
std::int64_t draw(const float* weights, std::int64_t n, double uniform) {
  double total = 0.0;
  for (std::int64_t i = 0; i < n; ++i) total += static_cast<double>(weights[i]);
  double left = uniform * total;
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (weights[i] == 0.0f) continue;
    last = i;
    left -= static_cast<double>(weights[i]);
    if (left < 0.0) break;
  }
  return last;
}

std::int64_t sample_row(const float* logits, const Params& params, const std::int64_t* rng,
                        const std::int32_t* counts, const Scratch& scratch, std::int64_t n,
                        const Context& context) {
  penalise(logits, counts, params, scratch.logits, n);
  const std::int64_t likeliest = VOLTA_SIMD_CALL(context.simd, argmax, scratch.logits, n);
  const float top = scratch.logits[likeliest];
  // Logits without a finite maximum have no softmax; then the row's NaN or infinity is the result.
  // The same holds for logits of minus infinity at an infinite temperature.
  const bool greedy = !(params.temperature > 0.0f) || !std::isfinite(params.temperature);
  if (greedy || !std::isfinite(top)) return likeliest;
  VOLTA_SIMD_CALL(context.simd, tempered, scratch.logits, top, params.temperature, scratch.weights,
                  n);
  filter(params, scratch, n);
  const Random4 bits = random_bits(static_cast<std::uint64_t>(rng[0]), kSampleStream,
                                   static_cast<std::uint32_t>(rng[1]), 0);
  return draw(scratch.weights, n, uniform_double(bits.x, bits.y));
}

// The likeliest tokens, and their logits minus `lse`.
struct Top {
  std::int32_t* tokens;
  float* logprobs;
  std::int64_t count;
};
void find_top(const float* logits, float lse, std::int32_t* order, std::int64_t n, const Top& top) {
  if (!std::isfinite(lse)) {  // NaN cannot be sorted.
    std::fill_n(top.tokens, top.count, -1);
    std::fill_n(top.logprobs, top.count, lse);
    return;
  }
  std::iota(order, order + n, 0);
  std::partial_sort(order, order + top.count, order + n, LikelierThan{logits});
  std::copy_n(order, top.count, top.tokens);
  std::transform(top.tokens, top.tokens + top.count, top.logprobs,
                 [&](std::int32_t token) { return logits[token] - lse; });
}

std::int64_t worker_count(std::int64_t rows, const Context& context) {
  return std::min<std::int64_t>(rows, context.pool->threads());
}

std::int64_t worker_bytes(std::int64_t tokens) { return round_up(tokens * kScratchBytes, 64); }

}  // namespace

std::int64_t workspace_bytes(const Argmax&, const ArgShapes&, const Context&) { return 0; }

void run(const Argmax&, const Args& args, const Context& context) noexcept {
  const Shape& shape = args.inputs[0].shape;
  const std::int64_t columns = shape.columns();
  const auto* x = args.inputs[0].as<const float>();
  auto* y = args.outputs[0].as<std::int32_t>();
  split_rows(context, shape.rows(), columns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      y[row] = static_cast<std::int32_t>(
          VOLTA_SIMD_CALL(context.simd, argmax, x + row * columns, columns));
    }
  });
}

std::int64_t workspace_bytes(const Sample&, const ArgShapes& shapes, const Context& context) {
  const Shape& logits = shapes.inputs[0].shape;
  return worker_count(logits[0], context) * worker_bytes(logits[1]);
}

void run(const Sample& op, const Args& args, const Context& context) noexcept {
  const std::int64_t rows = args.inputs[0].shape[0];
  const std::int64_t n = args.inputs[0].shape[1];
  const auto* logits = args.inputs[0].as<const float>();
  const auto* params = args.inputs[1].as<const float>();
  const auto* rng = args.inputs[2].as<const std::int64_t>();
  auto* counts = args.inputs[3].as<std::int32_t>();
  const std::int64_t sequences = args.inputs[3].shape[0];
  const auto* sequence = args.inputs[4].as<const std::int32_t>();
  auto* tokens = args.outputs[0].as<std::int32_t>();
  auto* logprobs = args.outputs[1].as<float>();
  if (n == 0) {  // Nothing to choose from.
    std::fill_n(tokens, rows, 0);
    std::fill_n(logprobs, rows, 0.0f);
    return;
  }
  const auto top_of = [&](std::int64_t row) -> Top {
    if (op.top == 0) return {nullptr, nullptr, 0};
    return {args.outputs[2].as<std::int32_t>() + row * op.top,
            args.outputs[3].as<float>() + row * op.top, op.top};
  };
  const std::int64_t workers = worker_count(rows, context);
  parallel_chunks(*context.pool, workers, [&](std::int64_t worker) {
    // SAFETY: workspace_bytes asked for worker_bytes a worker: two floats and an int32 a token,
    // all of four bytes, from a 64-byte boundary.
    auto* floats = reinterpret_cast<float*>(args.workspace.data() + worker * worker_bytes(n));
    const Scratch scratch = {floats, floats + n, reinterpret_cast<std::int32_t*>(floats + 2 * n)};
    for (std::int64_t row = rows * worker / workers; row < rows * (worker + 1) / workers; ++row) {
      const float* p = params + row * kSampleParams;
      const Top top = top_of(row);
      const bool known = sequence[row] >= 0 && sequence[row] < sequences;
      if (p[0] >= 0.0f && !known) report_bad_index(context, row);
      if (p[0] < 0.0f || !known) {  // A row that draws nothing.
        tokens[row] = -1;
        logprobs[row] = 0.0f;
        std::fill_n(top.tokens, top.count, -1);
        std::fill_n(top.logprobs, top.count, 0.0f);
        continue;
      }
      const float* x = logits + row * n;
      std::int32_t* const seen = counts + std::int64_t{sequence[row]} * 2 * n;
      const std::int64_t token = sample_row(x, {p[0], p[1], p[2], p[3], p[4], p[5], p[6]},
                                            rng + row * 2, seen, scratch, n, context);
      ++seen[n + token];
      float lse = 0.0f;
      VOLTA_SIMD_CALL(context.simd, log_sum_exp, x, 1, n, 0, &lse);
      tokens[row] = static_cast<std::int32_t>(token);
      logprobs[row] = x[token] - lse;
      if (top.count > 0) find_top(x, lse, scratch.order, n, top);
    }
  });
}

}  // namespace volta::cpu
#endif
