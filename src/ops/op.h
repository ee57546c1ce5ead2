// The instruction set of Volta on one page. Every op is a small plain struct of attributes; what it
// reads and writes are the values of a graph node (see "in:" and "out:" in each comment). An op
// knows nothing of tensors, devices or kernels. C++20-clean: kernels of every backend include it.
//
// Conventions. "rows" are all axes but the last, flattened. f = any of f32, bf16, f16; sums are
// always taken in f32 or better. Outputs are f32 unless said otherwise. `rng` is i64[2] = {seed,
// step}: together with an op's `stream` and an element's index it is the counter of a Philox
// generator, so that a mask can be made again instead of stored. Index tensors are i32.
// What changes from step to step (positions, lengths, seeds, learning rate) is an input, never an
// attribute.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <variant>

#include "base/arithmetic.h"
#include "tensor/dtype.h"
#include "tensor/encoding.h"
#include "tensor/shape.h"

namespace volta {

/// Pointwise nonlinearities that MatMul can apply to its result and GatedUnit to its gate.
enum class Activation : std::uint8_t { kNone, kRelu, kGelu, kGeluTanh, kSilu };

/// c = activation(a b + bias) + residual, summed in f32.
/// in: a f[.., M, K] (f[.., K, M] when transpose_a), b f[K, N] (f[N, K] when transpose_b),
///     bias f32[N] if has_bias, residual f32 like c if has_residual.   out: c f32[.., M, N]
/// Not batched: a's leading axes are flattened into rows; with transpose_a both operands are
/// flattened to [rows, columns], so that X^T dY over all tokens is one call, and c is [M, N].
/// batched: a and b have the same rank >= 3 and leading axes; no epilogue.
/// Neither batched nor with transpose_a, b may be encoded: with transpose_b in transposed panels,
/// otherwise in panels of itself. Results are the same, bit for bit; but where b is quantised, each
/// row of a is, too: to int8 in blocks along K as long as b's or longer, with a scale of f32 each;
/// what that leaves of 32 elements far louder than the rest of their block is rounded once more.
struct MatMul {
  bool transpose_a = false;
  bool transpose_b = false;
  bool batched = false;
  bool has_bias = false;
  bool has_residual = false;
  Activation activation = Activation::kNone;
  bool operator==(const MatMul&) const = default;
};

enum class UnaryKind : std::uint8_t {
  kScale,  // alpha x
  kExp,
  kLog,
  kSqrt,
  kSquare,
  kReciprocal,
  kTanh,
  kRelu,
  kGelu,      // x Phi(x), exact (Hendrycks & Gimpel 2016)
  kGeluTanh,  // its tanh approximation, as in GPT-2
  kSilu,      // x sigmoid(x)
};
/// y = kind(x), element by element. `alpha` is read by kScale only.
/// in: x f32[..]   out: y f32 like x
struct Unary {
  UnaryKind kind = UnaryKind::kScale;
  float alpha = 1.0f;
  bool operator==(const Unary&) const = default;
};
/// dx = dy * kind'(x).   in: x f32[..], dy f32 like x   out: dx f32 like x
struct UnaryGrad {
  UnaryKind kind = UnaryKind::kScale;
  float alpha = 1.0f;
  bool operator==(const UnaryGrad&) const = default;
};

enum class BinaryKind : std::uint8_t { kAdd, kSub, kMul, kDiv };
/// z = x (kind) y, element by element; y's shape is x's, or a suffix of it (repeated along the
/// leading axes), or has one element.   in: x f32[..], y f32   out: z f32 like x
struct Binary {
  BinaryKind kind = BinaryKind::kAdd;
  bool operator==(const Binary&) const = default;
};

enum class ReduceKind : std::uint8_t { kSum, kMean, kMax };
/// Reduces axes [begin, end) away; fixed summation order.   in: x f32[..]   out: y f32
struct Reduce {
  ReduceKind kind = ReduceKind::kSum;
  std::int32_t begin = 0;
  std::int32_t end = 0;
  bool operator==(const Reduce&) const = default;
};
/// y = scale * x repeated: the inverse of Reduce in shape. x's shape is `shape` without the axes
/// [begin, begin + shape.rank() - x.rank()).   in: x f32   out: y f32 `shape`
struct Expand {
  Shape shape;
  std::int16_t begin = 0;
  float scale = 1.0f;
  bool operator==(const Expand&) const = default;
};

/// The same bytes under another shape; a plan gives both the same memory.
/// in: x any   out: y like x, `shape`
struct Reshape {
  Shape shape;
  bool operator==(const Reshape&) const = default;
};
/// y's axis i is x's axis perm[i].   in: x any[rank <= 6]   out: y
struct Permute {
  std::array<std::int8_t, kMaxRank> perm{};
  bool operator==(const Permute&) const = default;
};
/// Elements [begin, begin + length) of `axis`.   in: x any   out: y
struct Slice {
  std::int32_t axis = 0;
  std::int64_t begin = 0;
  std::int64_t length = 0;
  bool operator==(const Slice&) const = default;
};
/// Zeros before and after along `axis`.   in: x any   out: y
struct Pad {
  std::int32_t axis = 0;
  std::int64_t before = 0;
  std::int64_t after = 0;
  bool operator==(const Pad&) const = default;
};
/// Conversion between f32, bf16, f16 (round to nearest even) and between integers and f32.
/// in: x   out: y of type `to`
struct Cast {
  DType to = DType::kF32;
  bool operator==(const Cast&) const = default;
};

/// Rearranges a weight into an encoding (tensor/encoding.h), quantised (rounded to the nearest q)
/// or not, or an encoded one back into rows. Runs once, when a model is prepared. in: x f[R, C],
/// plain or encoded   out: the same matrix as `to` says; f32 where one is quantised
struct Encode {
  Encoding to;
  bool operator==(const Encode&) const = default;
};

/// Row lookup. The table may be encoded as the transposed b of a MatMul (a tied output).
/// in: table f[V, D], ids i32[..]   out: f32[.., D]
struct Embedding {
  bool operator==(const Embedding&) const = default;
};
/// Sums rows of dy by id, in the order of the rows.   in: ids i32[..], dy f32[.., D]
/// out: f32[rows, D]
struct EmbeddingGrad {
  std::int64_t rows = 0;
  bool operator==(const EmbeddingGrad&) const = default;
};
/// Picks one row a sequence.   in: x f32[S, C, D], index i32[S]   out: f32[S, D]
struct GatherRows {
  bool operator==(const GatherRows&) const = default;
};

enum class NormKind : std::uint8_t { kLayer, kRms };
/// Layer norm (Ba et al. 2016) or RMS norm (Zhang & Sennrich 2019) over the last axis.
/// in: x f32[.., D], weight f[D], bias f[D] if has_bias (kLayer only)
/// out: y f32 like x, stats f32[rows, 2] = {mean (0 for kRms), 1 / sqrt(variance + eps)}
struct Norm {
  NormKind kind = NormKind::kLayer;
  bool has_bias = false;
  float eps = 1e-5f;
  bool operator==(const Norm&) const = default;
};
/// in: x, weight, stats, dy   out: dx f32 like x, dweight f32[D], dbias f32[D] if has_bias
struct NormGrad {
  NormKind kind = NormKind::kLayer;
  bool has_bias = false;
  bool operator==(const NormGrad&) const = default;
};

/// y = activation(gate) * up (Shazeer 2020).   in: gate f32[..], up f32 like gate   out: y
struct GatedUnit {
  Activation activation = Activation::kSilu;
  bool operator==(const GatedUnit&) const = default;
};
/// in: gate, up, dy   out: dgate, dup
struct GatedUnitGrad {
  Activation activation = Activation::kSilu;
  bool operator==(const GatedUnitGrad&) const = default;
};

/// y = softmax(scale * x) along the last axis.   in: x f32[.., D]   out: y like x
struct Softmax {
  float scale = 1.0f;
  bool operator==(const Softmax&) const = default;
};
/// dx = scale * y * (dy - sum(y dy)).   in: y, dy   out: dx
struct SoftmaxGrad {
  float scale = 1.0f;
  bool operator==(const SoftmaxGrad&) const = default;
};

/// Rotary position embedding (Su et al. 2021). Each row of x holds heads of `head_dim`; the first
/// `heads` are rotated, later ones copied (so that a packed q|k|v row is one call). Row t of the
/// table belongs to position t: `rotary/2` cosines, then `rotary/2` sines, rotary <= head_dim;
/// elements of a head past `rotary` are copied. Pairs are (i, i + rotary/2), or (2i, 2i + 1) when
/// interleaved. `inverse` rotates back, which is the gradient.
/// in: x f32[.., C], positions i32 like x without the last axis, or a suffix of that;
///     table f32[P, rotary]   out: y like x
struct Rope {
  std::int32_t heads = 1;
  std::int32_t head_dim = 0;
  bool interleaved = false;
  bool inverse = false;
  bool operator==(const Rope&) const = default;
};

/// Attention combines keys in blocks of so many, counted from position 0 of the sequence.
inline constexpr std::int64_t kAttentionKeyBlock = 64;
/// So many positions rounded up to whole blocks.
constexpr std::int64_t whole_key_blocks(std::int64_t positions) {
  return round_up(positions, kAttentionKeyBlock);
}

/// What every attention op shares. Query head h reads key/value head h / (heads / kv_heads).
struct AttentionShape {
  std::int32_t heads = 1;
  std::int32_t kv_heads = 1;
  std::int32_t head_dim = 0;
  std::int32_t window = 0;  ///< Row t sees keys (t - window, t]; 0: all up to t.
  float scale = 1.0f;       ///< Scores are scale * q k^T.
  bool packed = false;      ///< One input [.., (heads + 2 kv_heads) head_dim] = q | k | v.
  /// The ops over caches only: position p lies at row p % P of a cache that may be shorter than the
  /// sequence. P is at least window + rows - 1, so that no row still to be seen is overwritten.
  bool ring = false;
  bool operator==(const AttentionShape&) const = default;
};
/// Causal attention over whole sequences, tiled, never storing [T, T] (Dao et al. 2022).
/// in: qkv f32[B, T, (heads + 2 kv_heads) head_dim] if packed, otherwise
///     q f32[B, T, heads head_dim], k and v f32[B, T, kv_heads head_dim]; rng i64[2] if dropout > 0
/// out: y f32[B, T, heads head_dim], lse f32[B, heads, T] = log of the softmax denominator
struct Attention {
  AttentionShape shape;
  float dropout = 0.0f;  ///< Probability with which an attention weight is zeroed.
  std::uint32_t stream = 0;
  bool operator==(const Attention&) const = default;
};
/// in: the inputs of Attention (without rng), y, lse, dy, rng if dropout > 0
/// out: dqkv if packed, otherwise dq, dk, dv
struct AttentionGrad {
  AttentionShape shape;
  float dropout = 0.0f;
  std::uint32_t stream = 0;
  bool operator==(const AttentionGrad&) const = default;
};

/// The caches of the keys and of the values of P positions, a multiple of kAttentionKeyBlock. Keys
/// lie as the scores of a block are computed: element d of position p at [.., p / 64, d, p % 64].
constexpr Shape key_cache_shape(std::int64_t sequences, std::int64_t kv_heads,
                                std::int64_t positions, std::int64_t head_dim) {
  return {sequences, kv_heads, positions / kAttentionKeyBlock, head_dim, kAttentionKeyBlock};
}
constexpr Shape value_cache_shape(std::int64_t sequences, std::int64_t kv_heads,
                                  std::int64_t positions, std::int64_t head_dim) {
  return {sequences, kv_heads, positions, head_dim};
}

/// Writes the keys and values of rows t < count[s] at positions start[s] + t of the caches (modulo
/// P with `ring`). in: qkv f32[S, C, ..] if packed, otherwise k and v f32[S, C, kv_heads head_dim];
///     cache_k f[S, kv_heads, P / 64, head_dim, 64] (written),
///     cache_v like it [S, kv_heads, P, head_dim] (written), start i32[S], count i32[S]   out: none
struct KvAppend {
  AttentionShape shape;
  bool operator==(const KvAppend&) const = default;
};
/// Row t < count[s] of sequence s attends to cached positions 0 .. start[s] + t; other rows give 0.
/// Keys are combined in fixed blocks from position 0, so that a row's bits depend neither on how
/// many rows are computed with it nor on the capacity.
/// in: qkv f32[S, C, ..] if packed, otherwise q f32[S, C, heads head_dim];
///     cache_k, cache_v, start and count as for KvAppend
/// out: y f32[S, C, heads head_dim]
struct CachedAttention {
  AttentionShape shape;
  bool operator==(const CachedAttention&) const = default;
};

/// loss = logsumexp(logits) - logits[target], a row at a time; a negative target is ignored (loss
/// and gradient 0).   in: logits f32[.., V], targets i32[..]   out: loss f32[..], lse f32[..]
struct CrossEntropy {
  bool operator==(const CrossEntropy&) const = default;
};
/// dlogits = dloss * (softmax(logits) - onehot(target)).
/// in: logits, targets, lse, dloss f32[..]   out: dlogits f32 like logits
struct CrossEntropyGrad {
  bool operator==(const CrossEntropyGrad&) const = default;
};

/// y = x * keep / (1 - p), keep from Philox(seed, stream, step, element). Its gradient is itself.
/// in: x f32[..], rng i64[2]   out: y like x
struct Dropout {
  float p = 0.0f;
  std::uint32_t stream = 0;
  bool operator==(const Dropout&) const = default;
};

/// The norm of all gradients taken as one vector, and what to do with it.
/// in: loss f32[] or f32[1] (checked for finiteness only), then any number of gradients f32
/// out: stats f32[3] = {norm, factor, finite}: factor = min(1, max_norm / (norm + 1e-6)) as in
///      PyTorch, or 1 when max_norm is 0; finite = 1 when the loss, all gradients and their norm
///      are finite, otherwise 0
struct GlobalNorm {
  float max_norm = 0.0f;
  bool operator==(const GlobalNorm&) const = default;
};
/// AdamW (Loshchilov & Hutter 2019) in place; does nothing when stats says not finite.
/// in: param f32 (written), grad f32, m f32 (written), v f32 (written),
///     schedule f32[3] = {lr, 1 - beta1^t, 1 - beta2^t}, stats f32[3] of GlobalNorm   out: none
struct AdamW {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float eps = 1e-8f;
  float weight_decay = 0.0f;
  bool operator==(const AdamW&) const = default;
};
/// v = momentum v + grad + weight_decay param; param -= lr v. Skips like AdamW.
/// in: param (written), grad, velocity (written; absent when momentum is 0), schedule f32[3], stats
/// out: none
struct Sgd {
  float momentum = 0.0f;
  float weight_decay = 0.0f;
  bool operator==(const Sgd&) const = default;
};
/// target += scale * x, in place.   in: target f32 (written), x f32 like it   out: none
struct Accumulate {
  float scale = 1.0f;
  bool operator==(const Accumulate&) const = default;
};
/// target = value, in place.   in: target f32 (written)   out: none
struct Fill {
  float value = 0.0f;
  bool operator==(const Fill&) const = default;
};

/// Index of the largest element of each row; the first one on ties; NaN counts as largest.
/// in: x f32[.., V]   out: i32[..]
struct Argmax {
  bool operator==(const Argmax&) const = default;
};
/// Floats of a row of Sample's params.
inline constexpr std::int64_t kSampleParams = 7;
/// Draws one token a row. In this order: the repetition penalty (Keskar et al. 2019: positive
/// logits divided by it, others multiplied) on tokens of the prompt and of the output; logit -=
/// frequency * count + presence * (count > 0) with counts of the output alone; temperature; top-k;
/// top-p (Holtzman et al. 2020) of what is left; min-p; an inverse-CDF draw with Philox(seed,
/// step). Temperature 0 is greedy. Increments the count of the drawn token. A negative temperature
/// skips the row (an idle slot, an unfinished prompt): tokens -1, logprobs 0. in: logits f32[S, V],
/// params f32[S, kSampleParams] = {temperature, top_k (0 off), top_p (1 off),
///     min_p (0 off), repetition (1 off), frequency (0 off), presence (0 off)},
///     rng i64[S, 2] = {seed, step}, counts i32[S, 2, V] (written): of the prompt, of the output
/// out: token i32[S], logprob f32[S] of the token under softmax(logits); with top > 0 also
///      top_tokens i32[S, top], the likeliest first (equally likely ones by index), and
///      top_logprobs f32[S, top]
struct Sample {
  std::int32_t top = 0;
  bool operator==(const Sample&) const = default;
};

// Every op, once. The list makes the variant, the names and the declarations of infer, gradient and
// the kernels' run: a forgotten definition is a link error that names the op.
#define VOLTA_OPS(X)  \
  X(MatMul)           \
  X(Unary)            \
  X(UnaryGrad)        \
  X(Binary)           \
  X(Reduce)           \
  X(Expand)           \
  X(Reshape)          \
  X(Permute)          \
  X(Slice)            \
  X(Pad)              \
  X(Cast)             \
  X(Encode)           \
  X(Embedding)        \
  X(EmbeddingGrad)    \
  X(GatherRows)       \
  X(Norm)             \
  X(NormGrad)         \
  X(GatedUnit)        \
  X(GatedUnitGrad)    \
  X(Softmax)          \
  X(SoftmaxGrad)      \
  X(Rope)             \
  X(Attention)        \
  X(AttentionGrad)    \
  X(KvAppend)         \
  X(CachedAttention)  \
  X(CrossEntropy)     \
  X(CrossEntropyGrad) \
  X(Dropout)          \
  X(GlobalNorm)       \
  X(AdamW)            \
  X(Sgd)              \
  X(Accumulate)       \
  X(Fill)             \
  X(Argmax)           \
  X(Sample)

namespace op_list {
#define VOLTA_OP_ALTERNATIVE(Name) , Name
template <typename First, typename... Rest>
using VariantOfRest = std::variant<Rest...>;
using Variant = VariantOfRest<void VOLTA_OPS(VOLTA_OP_ALTERNATIVE)>;
#undef VOLTA_OP_ALTERNATIVE
}  // namespace op_list

/// Any op. Visit at most one at a time: a visit over two ops compiles for a quarter of a minute.
using Op = op_list::Variant;

static_assert(std::is_trivially_copyable_v<Op>);
#define VOLTA_OP_SIZE(Name) static_assert(sizeof(Name) <= 64);
VOLTA_OPS(VOLTA_OP_SIZE)
#undef VOLTA_OP_SIZE

/// The number of ops, and each one's name by its index in the variant.
inline constexpr std::size_t kOpCount = std::variant_size_v<Op>;
#define VOLTA_OP_NAME(Name) std::string_view(#Name),
inline constexpr std::array<std::string_view, kOpCount> kOpNames = {VOLTA_OPS(VOLTA_OP_NAME)};
#undef VOLTA_OP_NAME
constexpr std::string_view op_name(const Op& op) { return kOpNames[op.index()]; }

}  // namespace volta
