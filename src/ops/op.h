// The instruction set of Volta on one page. Every op is a small plain struct of attributes; what it
// reads and writes are the values of a graph node (see "in:" and "out:" in each comment). An op
// knows nothing of tensors, devices or kernels. C++20-clean: kernels of every backend include it.
//
// Conventions. "rows" are all axes but the last, flattened. f = f32, bf16 or f16, each operand of
// its own. t = f32, bf16 or f16 too, but the same type for every operand of one op that is marked
// so: its activations. An op computes in f32 (sums in f32 or better) and rounds once, to nearest
// even, where it stores: on 16-bit operands it is the f32 op between a widening and a rounding.
// Statistics, losses, sums over rows, gradients of parameters and the optimiser's operands are f32
// always. `rng` is i64[2] = {seed, step}: together with an op's `stream` and an element's index it
// is the counter of a Philox generator, so that a mask can be made again instead of stored. Index
// tensors are i32.
// What changes from step to step (positions, lengths, seeds, learning rate) is an input, never an
// attribute.
//
// `fields` shows a visitor every attribute of an op once, with its name: visit(name, attribute), or
// visit(name, attribute, shown) where the text of an op leaves the attribute out unless `shown`.
// The text, both directions of JSON and equality come from it (ops/fields.h).
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

namespace [[gnu::visibility("default")]] volta {

/// Functions of one element.
enum class UnaryKind : std::uint8_t {
  kNone,   // x
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
/// MatMul can apply some of them to its result and GatedUnit to its gate: the activations.
using Activation = UnaryKind;
constexpr bool is_activation(UnaryKind kind) {
  return kind == UnaryKind::kNone || kind == UnaryKind::kRelu || kind == UnaryKind::kGelu ||
         kind == UnaryKind::kGeluTanh || kind == UnaryKind::kSilu;
}

/// c = activation(a b + bias) + residual, summed in f32.
/// in: a f[.., M, K] (f[.., K, M] when transpose_a), b f[K, N] (f[N, K] when transpose_b),
///     bias f32[N] if has_bias, residual like c if has_residual.
/// out: c of type `out` [.., M, N]
/// Not batched: a's leading axes are flattened into rows; with transpose_a both operands are
/// flattened to [rows, columns], so that X^T dY over all tokens is one call, and c is [M, N].
/// batched: a and b have the same rank >= 3 and leading axes; no epilogue.
/// Unless the product is batched or has transpose_a, b may be encoded: in panels, or with
/// transpose_b in transposed panels. Panels of floats give the same bits as a plain b. With a
/// quantised b each row of a is quantised, too: to int8, in blocks along K that are at least as
/// long as b's and have an f32 scale each. Where 32 neighbouring elements of a are far larger than
/// the rest of their block, the error of rounding them is itself rounded to int8 and added.
struct MatMul {
  bool transpose_a = false;
  bool transpose_b = false;
  bool batched = false;
  bool has_bias = false;
  bool has_residual = false;
  Activation activation = Activation::kNone;
  DType out = DType::kF32;
  static constexpr void fields(auto& op, auto&& visit) {
    visit("transpose_a", op.transpose_a);
    visit("transpose_b", op.transpose_b);
    visit("batched", op.batched);
    visit("bias", op.has_bias);
    visit("activation", op.activation, op.activation != UnaryKind::kNone);
    visit("residual", op.has_residual);
    visit("out", op.out, op.out != DType::kF32);
  }
};

/// y = kind(x), element by element. `alpha` is read by kScale only.
/// in: x t[..]   out: y like x
struct Unary {
  UnaryKind kind = UnaryKind::kScale;
  float alpha = 1.0f;
  static constexpr void fields(auto& op, auto&& visit) {
    visit("kind", op.kind);
    visit("alpha", op.alpha, op.kind == UnaryKind::kScale);
  }
};
/// dx = dy * kind'(x).   in: x t[..], dy like x   out: dx like x
struct UnaryGrad {
  UnaryKind kind = UnaryKind::kScale;
  float alpha = 1.0f;
  static constexpr void fields(auto& op, auto&& visit) {
    visit("kind", op.kind);
    visit("alpha", op.alpha, op.kind == UnaryKind::kScale);
  }
};

enum class BinaryKind : std::uint8_t { kAdd, kSub, kMul, kDiv };
/// z = x (kind) y, element by element; y's shape is x's, or a suffix of it (repeated along the
/// leading axes), or has one element.   in: x t[..], y t   out: z like x
struct Binary {
  BinaryKind kind = BinaryKind::kAdd;
  static constexpr void fields(auto& op, auto&& visit) { visit("kind", op.kind); }
};

enum class ReduceKind : std::uint8_t { kSum, kMean, kMax };
/// Reduces axes [begin, end) away; fixed summation order.   in: x f[..]   out: y f32
struct Reduce {
  ReduceKind kind = ReduceKind::kSum;
  std::int32_t begin = 0;
  std::int32_t end = 0;
  static constexpr void fields(auto& op, auto&& visit) {
    visit("kind", op.kind);
    visit("begin", op.begin);
    visit("end", op.end);
  }
};
/// y = scale * x repeated: the inverse of Reduce in shape. x's shape is `shape` without the axes
/// [begin, begin + shape.rank() - x.rank()).   in: x t   out: y t `shape`
struct Expand {
  Shape shape;
  std::int16_t begin = 0;
  float scale = 1.0f;
  static constexpr void fields(auto& op, auto&& visit) {
    visit("shape", op.shape);
    visit("begin", op.begin);
    visit("scale", op.scale, op.scale != 1.0f);
  }
};

/// The same bytes under another shape; a plan gives both the same memory.
/// in: x any   out: y like x, `shape`
struct Reshape {
  Shape shape;
  static constexpr void fields(auto& op, auto&& visit) { visit("shape", op.shape); }
};
/// y's axis i is x's axis perm[i].   in: x any[rank <= 6]   out: y
struct Permute {
  std::array<std::int8_t, kMaxRank> perm{};
  static constexpr void fields(auto& op, auto&& visit) { visit("perm", op.perm); }
};
/// Elements [begin, begin + length) of `axis`.   in: x any   out: y
struct Slice {
  std::int32_t axis = 0;
  std::int64_t begin = 0;
  std::int64_t length = 0;
  static constexpr void fields(auto& op, auto&& visit) {
    visit("axis", op.axis);
    visit("begin", op.begin);
    visit("length", op.length);
  }
};
/// Zeros before and after along `axis`.   in: x any   out: y
struct Pad {
  std::int32_t axis = 0;
  std::int64_t before = 0;
  std::int64_t after = 0;
  static constexpr void fields(auto& op, auto&& visit) {
    visit("axis", op.axis);
    visit("before", op.before);
    visit("after", op.after);
  }
};
/// Conversion between f32, bf16, f16 (round to nearest even) and between integers and f32.
/// in: x   out: y of type `to`
struct Cast {
  DType to = DType::kF32;
  static constexpr void fields(auto& op, auto&& visit) { visit("to", op.to); }
};

/// Rearranges a weight into an encoding (tensor/encoding.h), quantised (rounded to the nearest q)
/// or not, or an encoded one back into rows. Runs once, when a model is prepared. in: x f[R, C],
/// plain or encoded   out: the same matrix as `to` says; f32 where one is quantised
struct Encode {
  Encoding to;
  static constexpr void fields(auto& op, auto&& visit) { visit("to", op.to); }
};

/// Row lookup: of a weight's rows, or of some rows of any matrix. The table may be encoded as the
/// transposed b of a MatMul (a tied output), or be rows of blocks of integers, as files store them.
/// in: table f[V, D], ids i32[..]   out: y of type `out` [.., D]
struct Embedding {
  DType out = DType::kF32;
  static constexpr void fields(auto& op, auto&& visit) {
    visit("out", op.out, op.out != DType::kF32);
  }
};
/// Sums rows of dy by id, in the order of the rows.   in: ids i32[..], dy f[.., D]
/// out: f32[rows, D]
struct EmbeddingGrad {
  std::int64_t rows = 0;
  static constexpr void fields(auto& op, auto&& visit) { visit("rows", op.rows); }
};

enum class NormKind : std::uint8_t { kLayer, kRms };
/// Layer norm (Ba et al. 2016) or RMS norm (Zhang & Sennrich 2019) over the last axis.
/// With plus_one (kRms only) rows are multiplied by 1 + weight, as in Gemma.
/// in: x t[.., D], weight f[D], bias f[D] if has_bias (kLayer only)
/// out: y like x, stats f32[rows, 2] = {mean (0 for kRms), 1 / sqrt(variance + eps)}
struct Norm {
  NormKind kind = NormKind::kLayer;
  bool has_bias = false;
  float eps = 1e-5f;
  bool plus_one = false;
  static constexpr void fields(auto& op, auto&& visit) {
    visit("kind", op.kind);
    visit("bias", op.has_bias);
    visit("eps", op.eps);
    visit("plus_one", op.plus_one);
  }
};
/// in: x t[.., D], weight f[D], stats, dy like x
/// out: dx like x, dweight f32[D], dbias f32[D] if has_bias
struct NormGrad {
  NormKind kind = NormKind::kLayer;
  bool has_bias = false;
  bool plus_one = false;
  static constexpr void fields(auto& op, auto&& visit) {
    visit("kind", op.kind);
    visit("bias", op.has_bias);
    visit("plus_one", op.plus_one);
  }
};

/// y = activation(gate) * up (Shazeer 2020).   in: gate t[..], up like gate   out: y
struct GatedUnit {
  Activation activation = Activation::kSilu;
  static constexpr void fields(auto& op, auto&& visit) { visit("activation", op.activation); }
};
/// in: gate t[..], up and dy like gate   out: dgate, dup
struct GatedUnitGrad {
  Activation activation = Activation::kSilu;
  static constexpr void fields(auto& op, auto&& visit) { visit("activation", op.activation); }
};

/// y = softmax(scale * x) along the last axis.   in: x t[.., D]   out: y like x
struct Softmax {
  float scale = 1.0f;
  static constexpr void fields(auto& op, auto&& visit) { visit("scale", op.scale); }
};
/// dx = scale * y * (dy - sum(y dy)).   in: y t[.., D], dy like y   out: dx
struct SoftmaxGrad {
  float scale = 1.0f;
  static constexpr void fields(auto& op, auto&& visit) { visit("scale", op.scale); }
};

/// Rotary position embedding (Su et al. 2021). Each row of x holds heads of `head_dim`; the first
/// `heads` are rotated, later ones copied (so that a packed q|k|v row is one call). Row t of the
/// table belongs to position t: `rotary/2` cosines, then `rotary/2` sines, rotary <= head_dim;
/// elements of a head past `rotary` are copied. Pairs are (i, i + rotary/2), or (2i, 2i + 1) when
/// interleaved. `inverse` rotates back, which is the gradient.
/// in: x t[.., C], positions i32 like x without the last axis, or a suffix of that;
///     table f32[P, rotary]   out: y like x
struct Rope {
  std::int32_t heads = 1;
  std::int32_t head_dim = 0;
  bool interleaved = false;
  bool inverse = false;
  static constexpr void fields(auto& op, auto&& visit) {
    visit("heads", op.heads);
    visit("head_dim", op.head_dim);
    visit("interleaved", op.interleaved);
    visit("inverse", op.inverse);
  }
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
  float softcap = 0.0f;     ///< Above 0: a score s becomes softcap * tanh(s / softcap).
  static constexpr void fields(auto& op, auto&& visit) {
    visit("heads", op.heads);
    visit("kv_heads", op.kv_heads, op.kv_heads != op.heads);
    visit("head_dim", op.head_dim);
    visit("window", op.window, op.window > 0);
    visit("scale", op.scale);
    visit("packed", op.packed);
    visit("softcap", op.softcap, op.softcap > 0.0f);
  }
};
/// Causal attention over whole sequences, tiled, never storing [T, T] (Dao et al. 2022).
/// in: qkv t[B, T, (heads + 2 kv_heads) head_dim] if packed, otherwise
///     q t[B, T, heads head_dim], k and v t[B, T, kv_heads head_dim]; rng i64[2] if dropout > 0
/// out: y t[B, T, heads head_dim], lse f32[B, heads, T] = log of the softmax denominator
struct Attention {
  AttentionShape shape;
  float dropout = 0.0f;  ///< Probability with which an attention weight is zeroed.
  std::uint32_t stream = 0;
  static constexpr void fields(auto& op, auto&& visit) {
    visit("shape", op.shape);
    visit("dropout", op.dropout, op.dropout > 0.0f);
    visit("stream", op.stream, op.dropout > 0.0f);
  }
};
/// in: the inputs of Attention (without rng), y t, lse f32, dy t, rng if dropout > 0
/// out: dqkv if packed, otherwise dq, dk, dv, of type t
struct AttentionGrad {
  AttentionShape shape;
  float dropout = 0.0f;
  std::uint32_t stream = 0;
  static constexpr void fields(auto& op, auto&& visit) {
    visit("shape", op.shape);
    visit("dropout", op.dropout, op.dropout > 0.0f);
    visit("stream", op.stream, op.dropout > 0.0f);
  }
};

/// A cache of keys or of values is a pool of pages. A page holds one block of kAttentionKeyBlock
/// positions of one sequence, for all key/value heads. Keys lie as the scores of a block are
/// computed: element d of the key at place p of a page at [page, head, d, p].
constexpr Shape key_cache_shape(std::int64_t pages, std::int64_t kv_heads, std::int64_t head_dim) {
  return {pages, kv_heads, head_dim, kAttentionKeyBlock};
}
constexpr Shape value_cache_shape(std::int64_t pages, std::int64_t kv_heads,
                                  std::int64_t head_dim) {
  return {pages, kv_heads, kAttentionKeyBlock, head_dim};
}

/// Writes the keys and values of new tokens, a row each, into the pages of their sequences: row n
/// at place positions[n] % 64 of page table[sequences[n], positions[n] / 64]. Rows from `rows` on
/// do not count. in: qkv t[N, ..] if packed, otherwise k and v t[N, kv_heads head_dim];
///     cache_k f[P, kv_heads, head_dim, 64] (written), cache_v like it [P, kv_heads, 64, head_dim]
///     (written), positions i32[N], sequences i32[N], rows i32[1], table i32[S, blocks]   out: none
struct KvAppend {
  AttentionShape shape;
  static constexpr void fields(auto& op, auto&& visit) { visit("shape", op.shape); }
};
/// Row n attends to the positions of its sequence up to its own; rows that do not count give 0. A
/// page of which no row sees anything need not be in the table (-1, say). Keys are combined in
/// blocks by their number in the sequence, so that a row's bits depend neither on the rows that are
/// computed with it nor on the pages that a sequence has.
/// in: qkv t[N, ..] if packed, otherwise q t[N, heads head_dim];
///     cache_k, cache_v, positions, sequences, rows and table as for KvAppend
/// out: y t[N, heads head_dim]
struct CachedAttention {
  AttentionShape shape;
  static constexpr void fields(auto& op, auto&& visit) { visit("shape", op.shape); }
};

/// loss = logsumexp(logits) - logits[target], a row at a time; a negative target is ignored (loss
/// and gradient 0).   in: logits f[.., V], targets i32[..]   out: loss f32[..], lse f32[..]
struct CrossEntropy {
  static constexpr void fields(auto& /*op*/, auto&& /*visit*/) {}
};
/// dlogits = dloss * (softmax(logits) - onehot(target)).
/// in: logits t[.., V], targets, lse f32[..], dloss f32[..]   out: dlogits like logits
struct CrossEntropyGrad {
  static constexpr void fields(auto& /*op*/, auto&& /*visit*/) {}
};

/// y = x * keep / (1 - p), keep from Philox(seed, stream, step, element). Its gradient is itself.
/// in: x t[..], rng i64[2]   out: y like x
struct Dropout {
  float p = 0.0f;
  std::uint32_t stream = 0;
  static constexpr void fields(auto& op, auto&& visit) {
    visit("p", op.p);
    visit("stream", op.stream);
  }
};

/// The norm of all gradients taken as one vector, and what to do with it.
/// in: loss f32[] or f32[1] (checked for finiteness only), then any number of gradients f32
/// out: stats f32[3] = {norm, factor, finite}: factor = min(1, max_norm / (norm + 1e-6)) as in
///      PyTorch, or 1 when max_norm is 0; finite = 1 when the loss, all gradients and their norm
///      are finite, otherwise 0
struct GlobalNorm {
  float max_norm = 0.0f;
  static constexpr void fields(auto& op, auto&& visit) { visit("max_norm", op.max_norm); }
};
/// AdamW (Loshchilov & Hutter 2019) in place; does nothing when stats says not finite.
/// in: param f32 (written), grad f32, m f32 (written), v f32 (written),
///     schedule f32[3] = {lr, 1 - beta1^t, 1 - beta2^t}, stats f32[3] of GlobalNorm   out: none
struct AdamW {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float eps = 1e-8f;
  float weight_decay = 0.0f;
  static constexpr void fields(auto& op, auto&& visit) {
    visit("beta1", op.beta1);
    visit("beta2", op.beta2);
    visit("eps", op.eps);
    visit("weight_decay", op.weight_decay);
  }
};
/// v = momentum v + grad + weight_decay param; param -= lr v. Skips like AdamW.
/// in: param (written), grad, velocity (written; absent when momentum is 0), schedule f32[3], stats
/// out: none
struct Sgd {
  float momentum = 0.0f;
  float weight_decay = 0.0f;
  static constexpr void fields(auto& op, auto&& visit) {
    visit("momentum", op.momentum);
    visit("weight_decay", op.weight_decay);
  }
};
/// target += scale * x, in place.   in: target f32 (written), x f32 like it   out: none
struct Accumulate {
  float scale = 1.0f;
  static constexpr void fields(auto& op, auto&& visit) { visit("scale", op.scale); }
};
/// target = value, in place.   in: target f32 (written)   out: none
struct Fill {
  float value = 0.0f;
  static constexpr void fields(auto& op, auto&& visit) { visit("value", op.value); }
};

/// Index of the largest element of each row; the first one on ties; NaN counts as largest.
/// in: x f[.., V]   out: i32[..]
struct Argmax {
  static constexpr void fields(auto& /*op*/, auto&& /*visit*/) {}
};
/// Floats of a row of Sample's params.
inline constexpr std::int64_t kSampleParams = 7;
/// Draws one token a row. In this order: the repetition penalty (Keskar et al. 2019: positive
/// logits divided by it, others multiplied) on tokens of the prompt and of the output; logit -=
/// frequency * count + presence * (count > 0) with counts of the output alone; temperature; top-k;
/// top-p (Holtzman et al. 2020) of what is left; min-p; an inverse-CDF draw with Philox(seed,
/// step). Temperature 0 is greedy. Increments the count of the drawn token. A negative temperature
/// skips the row: tokens -1, logprobs 0. in: logits f[R, V],
/// params f32[R, kSampleParams] = {temperature, top_k (0 off), top_p (1 off),
///     min_p (0 off), repetition (1 off), frequency (0 off), presence (0 off)},
///     rng i64[R, 2] = {seed, step}, counts i32[S, 2, V] (written): of the prompt, of the output,
///     sequences i32[R]: whose counts a row reads and writes; each of another sequence
/// out: token i32[R], logprob f32[R] of the token under softmax(logits); with top > 0 also
///      top_tokens i32[R, top], the likeliest first (equally likely ones by index), and
///      top_logprobs f32[R, top]
struct Sample {
  std::int32_t top = 0;
  static constexpr void fields(auto& op, auto&& visit) { visit("top", op.top, op.top > 0); }
};

// Every op, once. The list makes the variant, the names and the declarations of all that must be
// known of an op (ops/rules.h) and of its kernels: a forgotten definition is a link error that
// names the op.
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
