// The instruction set of Volta on one page. Every op is a small plain struct of attributes. Its
// operands are the values of a graph node; "in:" and "out:" in each comment list them. An op knows
// nothing of tensors, devices or kernels. C++20-clean: kernels of every backend include it.
//
// Conventions. "rows" are all axes but the last, flattened. f means f32, bf16 or f16; operands
// marked f may have different types. t means f32, bf16 or f16, too, but all operands of one op that
// are marked t have the same type: they are its activations. An op computes in f32 (sums in f32 or
// better) and rounds once, to nearest even, when it stores a result. So on 16-bit operands an op
// widens to f32, computes as the f32 op does, and rounds. Statistics, losses, sums over rows,
// gradients of parameters and the optimiser's operands are always f32. `rng` is i64[2] = {seed,
// step}. The seed is the key of a Philox generator; the step, an op's `stream` and an element's
// index are its counter. So a mask can be computed again instead of being stored. Index tensors are
// i32.
// Values that change from step to step (positions, lengths, seeds, the learning rate) are inputs,
// never attributes.
//
// `fields` passes every attribute of an op to a visitor once, with its name: visit(name,
// attribute), or visit(name, attribute, shown). The text of an op leaves an attribute out when
// `shown` is false. The text, the JSON writer and reader, and equality all use `fields`
// (ops/fields.h).
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
/// The unary functions that MatMul can apply to its result and GatedUnit to its gate; see
/// is_activation.
using Activation = UnaryKind;
constexpr bool is_activation(UnaryKind kind) {
  return kind == UnaryKind::kNone || kind == UnaryKind::kRelu || kind == UnaryKind::kGelu ||
         kind == UnaryKind::kGeluTanh || kind == UnaryKind::kSilu;
}

/// c = activation(a b + bias) + residual, summed in f32.
/// in: a f[.., M, K] (f[.., K, M] when transpose_a), b f[K, N] (f[N, K] when transpose_b),
///     bias f32[N] if has_bias, residual like c if has_residual.
/// out: c of type `out` [.., M, N]
/// Not batched: the leading axes of a are flattened into rows. With transpose_a both operands are
/// flattened to [rows, columns] and c is [M, N], so that X^T dY over all tokens is one call.
/// batched: a and b have the same rank >= 3 and leading axes; no epilogue.
/// Unless the product is batched or has transpose_a, b may be encoded: in panels, or with
/// transpose_b in transposed panels. Panels of floats give the same bits as a plain b. With a
/// quantised b each row of a is quantised, too: to int8, in blocks along K. These blocks are at
/// least as long as those of b, and each has an f32 scale. Where 32 neighbouring elements of a are
/// far larger than the rest of their block, the error of rounding them is itself rounded to int8
/// and added.
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

/// y = kind(x), element by element. Only kScale reads `alpha`.
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
/// z = x (kind) y, element by element. The shape of y is that of x, or a suffix of it (y is
/// repeated along the leading axes), or has one element.   in: x t[..], y t   out: z like x
struct Binary {
  BinaryKind kind = BinaryKind::kAdd;
  static constexpr void fields(auto& op, auto&& visit) { visit("kind", op.kind); }
};

enum class ReduceKind : std::uint8_t { kSum, kMean, kMax };
/// Reduces over axes [begin, end) and removes them. The order of summation is fixed.   in: x f[..]
/// out: y f32
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
/// y = scale * x, repeated along new axes: the inverse of Reduce for shapes. The shape of x is
/// `shape` without the axes [begin, begin + shape.rank() - x.rank()).   in: x t   out: y t `shape`
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

/// The same bytes with another shape. A plan gives x and y the same memory, unless x is written
/// while y is still needed.
/// in: x any   out: y like x, `shape`
struct Reshape {
  Shape shape;
  static constexpr void fields(auto& op, auto&& visit) { visit("shape", op.shape); }
};
/// Axis i of y is axis perm[i] of x.   in: x any[rank <= 6]   out: y
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
/// Adds `before` zeros in front of the elements of `axis`, and `after` zeros behind them.
/// in: x any   out: y
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

/// Converts a weight to another encoding (tensor/encoding.h): a plain one into panels or blocks of
/// integers (each rounded to the nearest q), integers in rows into panels of the same integers, or
/// an encoded one back to row-major. Runs once, when a model is prepared.
/// in: x f[R, C], plain or encoded
/// out: the same matrix in the encoding `to`; of type f32 if x or `to` is quantised
struct Encode {
  Encoding to;
  static constexpr void fields(auto& op, auto&& visit) { visit("to", op.to); }
};

/// Looks up the rows `ids` of a weight or of any other matrix. The table may be encoded as the
/// transposed b of a MatMul (weights tied to the output), or row-major in blocks of integers, as
/// files store it.
/// in: table f[V, D], ids i32[..]   out: y of type `out` [.., D]
struct Embedding {
  DType out = DType::kF32;
  static constexpr void fields(auto& op, auto&& visit) {
    visit("out", op.out, op.out != DType::kF32);
  }
};
/// Adds up the rows of dy that have the same id, in the order of the rows.
/// in: ids i32[..], dy f[.., D]
/// out: f32[rows, D]
struct EmbeddingGrad {
  std::int64_t rows = 0;
  static constexpr void fields(auto& op, auto&& visit) { visit("rows", op.rows); }
};

enum class NormKind : std::uint8_t { kLayer, kRms };
/// Layer norm (Ba et al. 2016) or RMS norm (Zhang & Sennrich 2019) over the last axis.
/// With plus_one (kRms only) the normalised rows are multiplied by 1 + weight, as in Gemma.
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

/// Rotary position embedding (Su et al. 2021). Each row of x holds heads of `head_dim` elements.
/// The first `heads` heads are rotated and the later ones are copied, so that a packed q|k|v row is
/// one call. Row t of the table belongs to position t: `rotary/2` cosines, then `rotary/2` sines,
/// with rotary <= head_dim. The elements of a head from `rotary` on are copied. The rotated pairs
/// are (i, i + rotary/2), or (2i, 2i + 1) when interleaved. `inverse` rotates in the opposite
/// direction, which is the gradient.
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

/// The number of keys per block: attention combines keys in blocks, counted from position 0 of the
/// sequence.
inline constexpr std::int64_t kAttentionKeyBlock = 64;
/// The number of positions, rounded up to whole blocks.
constexpr std::int64_t whole_key_blocks(std::int64_t positions) {
  return round_up(positions, kAttentionKeyBlock);
}

/// The attributes that all attention ops share. Query head h reads key/value head h / (heads /
/// kv_heads).
struct AttentionShape {
  std::int32_t heads = 1;
  std::int32_t kv_heads = 1;
  std::int32_t head_dim = 0;
  std::int32_t window = 0;  ///< Row t sees keys (t - window, t]; with 0 it sees all keys up to t.
  float scale = 1.0f;       ///< Scores are scale * q k^T.
  bool packed = false;      ///< One input [.., (heads + 2 kv_heads) head_dim] = q | k | v.
  float softcap = 0.0f;     ///< Above 0: a score s becomes softcap * tanh(s / softcap).
  bool causal = true;       ///< Without it, rows see all keys of their sequence, as in encoders.
  static constexpr void fields(auto& op, auto&& visit) {
    visit("heads", op.heads);
    visit("kv_heads", op.kv_heads, op.kv_heads != op.heads);
    visit("head_dim", op.head_dim);
    visit("window", op.window, op.window > 0);
    visit("scale", op.scale);
    visit("packed", op.packed);
    visit("softcap", op.softcap, op.softcap > 0.0f);
    visit("causal", op.causal, !op.causal);
  }
};
/// Attention over whole sequences. It is tiled and never stores a [T, T] matrix (Dao et al.
/// 2022). On devices with tensor cores the weights of 16-bit operands are rounded to the operands'
/// type before they are multiplied by v; their sum, and with it lse, is that of the weights in f32.
/// The CPU keeps them in f32.
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
/// On devices with tensor cores the weights and the gradients of the scores of 16-bit operands are
/// rounded to the operands' type before they are multiplied by dy, q and k.
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
/// positions of one sequence, for all key/value heads. Keys are stored transposed, in the order in
/// which the scores of a block are computed: element d of the key at place p of a page is at [page,
/// head, d, p].
constexpr Shape key_cache_shape(std::int64_t pages, std::int64_t kv_heads, std::int64_t head_dim) {
  return {pages, kv_heads, head_dim, kAttentionKeyBlock};
}
constexpr Shape value_cache_shape(std::int64_t pages, std::int64_t kv_heads,
                                  std::int64_t head_dim) {
  return {pages, kv_heads, kAttentionKeyBlock, head_dim};
}

/// Writes the keys and values of new tokens, one token per row, into the pages of their sequences.
/// Row n goes to place positions[n] % 64 of page table[sequences[n], positions[n] / 64]. Rows from
/// `rows` on are ignored.
/// in: qkv t[N, ..] if packed, otherwise k and v t[N, kv_heads head_dim];
///     cache_k f[P, kv_heads, head_dim, 64] (written), cache_v like it [P, kv_heads, 64, head_dim]
///     (written), positions i32[N], sequences i32[N], rows i32[1], table i32[S, blocks]   out: none
struct KvAppend {
  AttentionShape shape;
  static constexpr void fields(auto& op, auto&& visit) { visit("shape", op.shape); }
};
/// Row n attends to the positions of its sequence up to its own. The results of ignored rows are 0.
/// The table need not name a page of which no row sees a position (its entry may be -1). Keys are
/// combined in blocks by their position in the sequence, so that the bits of a row depend neither
/// on the rows that are computed with it nor on the pages that hold the sequence. Where q and the
/// caches have the same 16-bit type, weights may be rounded to it, as those of Attention are.
/// in: qkv t[N, ..] if packed, otherwise q t[N, heads head_dim];
///     cache_k, cache_v, positions, sequences, rows and table as for KvAppend
/// out: y t[N, heads head_dim]
struct CachedAttention {
  AttentionShape shape;
  static constexpr void fields(auto& op, auto&& visit) { visit("shape", op.shape); }
};

/// loss = logsumexp(logits) - logits[target], for each row. A row with a negative target is
/// ignored: its loss and its gradient are 0.
/// in: logits f[.., V], targets i32[..]   out: loss f32[..], lse f32[..]
struct CrossEntropy {
  static constexpr void fields(auto& /*op*/, auto&& /*visit*/) {}
};
/// dlogits = dloss * (softmax(logits) - onehot(target)). With with_loss it also does the work of
/// CrossEntropy, in one pass over the logits: it computes lse itself, and gives the loss.
/// in: logits t[.., V], targets, lse f32[..] unless with_loss, dloss f32[..]
/// out: dlogits like logits, loss f32[..] if with_loss
struct CrossEntropyGrad {
  bool with_loss = false;
  static constexpr void fields(auto& op, auto&& visit) { visit("with_loss", op.with_loss); }
};

/// y = x * keep / (1 - p), where keep (0 or 1) comes from Philox(seed, stream, step, element). The
/// gradient of dropout is the same op on dy.
/// in: x t[..], rng i64[2]   out: y like x
struct Dropout {
  float p = 0.0f;
  std::uint32_t stream = 0;
  static constexpr void fields(auto& op, auto&& visit) {
    visit("p", op.p);
    visit("stream", op.stream);
  }
};

/// The norm of all gradients together, as of one vector, and the factor by which the optimiser
/// scales the gradients.
/// in: loss f32[] or f32[1] (checked for finiteness only), then any number of gradients f32
/// out: stats f32[3] = {norm, factor, finite}: factor = min(1, max_norm / (norm + 1e-6)) as in
///      PyTorch, or 1 when max_norm is 0; finite = 1 when the loss, all gradients and their norm
///      are finite, otherwise 0
struct GlobalNorm {
  float max_norm = 0.0f;
  static constexpr void fields(auto& op, auto&& visit) { visit("max_norm", op.max_norm); }
};
/// AdamW (Loshchilov & Hutter 2019) in place. Does nothing when `finite` of stats is 0.
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
/// v = momentum v + grad + weight_decay param; param -= lr v. Does nothing when `finite` of stats
/// is 0.
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

/// The index of the largest element of each row. Of equal elements the first one wins; a NaN counts
/// as the largest.
/// in: x f[.., V]   out: i32[..]
struct Argmax {
  static constexpr void fields(auto& /*op*/, auto&& /*visit*/) {}
};
/// The number of floats per row of Sample's params.
inline constexpr std::int64_t kSampleParams = 7;
/// Draws one token per row. The steps are, in this order: the repetition penalty (Keskar et al.
/// 2019: it divides positive logits and multiplies the others) on tokens of the prompt and of the
/// output; logit -= frequency * count + presence * (count > 0) with the counts of the output alone;
/// temperature; top-k; top-p (Holtzman et al. 2020) of the remaining tokens; min-p; an inverse-CDF
/// draw with Philox(seed, step). Temperature 0 is greedy. Increments the count of the drawn token.
/// A negative temperature skips the row: its tokens are -1 and its logprobs 0.
/// in: logits f[R, V],
///     params f32[R, kSampleParams] = {temperature, top_k (0 off), top_p (1 off),
///     min_p (0 off), repetition (1 off), frequency (0 off), presence (0 off)},
///     rng i64[R, 2] = {seed, step},
///     counts i32[S, 2, V] (written): how often each token is in the prompt, and in the output,
///     sequences i32[R]: the sequence whose counts a row reads and writes; it differs in every row
/// out: token i32[R], logprob f32[R] of the token under softmax(logits); with top > 0 also
///      top_tokens i32[R, top], the likeliest first (equally likely ones by index), and
///      top_logprobs f32[R, top]
struct Sample {
  std::int32_t top = 0;
  static constexpr void fields(auto& op, auto&& visit) { visit("top", op.top, op.top > 0); }
};

// Every op, once. The variant, the names, and the declarations of each op's rules (ops/rules.h) and
// kernels are made from this list. So a forgotten definition is a link error that names the op.
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

/// Any op. Visit one op at a time: std::visit over two ops takes a quarter of a minute to compile.
using Op = op_list::Variant;

static_assert(std::is_trivially_copyable_v<Op>);
#define VOLTA_OP_SIZE(Name) static_assert(sizeof(Name) <= 64);
VOLTA_OPS(VOLTA_OP_SIZE)
#undef VOLTA_OP_SIZE

/// The number of ops, and the name of each op by its index in the variant.
inline constexpr std::size_t kOpCount = std::variant_size_v<Op>;
#define VOLTA_OP_NAME(Name) std::string_view(#Name),
inline constexpr std::array<std::string_view, kOpCount> kOpNames = {VOLTA_OPS(VOLTA_OP_NAME)};
#undef VOLTA_OP_NAME
constexpr std::string_view op_name(const Op& op) { return kOpNames[op.index()]; }

}  // namespace volta
