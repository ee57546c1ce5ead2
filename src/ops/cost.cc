// What an op costs at least: floating-point operations and bytes moved, for profiles and dumps.
// Estimates by definition: a transcendental counts as a handful of operations, and the length of a
// cache, which only the run knows, as its capacity.
#include <algorithm>
#include <array>
#include <cmath>

#include "ops/rules.h"

namespace volta {

namespace {

using Specs = std::span<const TensorSpec>;

// Operations an element of the larger of the first input and the first output.
constexpr double kCheap = 1;      // An add, a multiply, a comparison.
constexpr double kNonlinear = 8;  // exp, tanh, erf and what surrounds them.

double elements(const TensorSpec& spec) { return static_cast<double>(spec.shape.elements()); }

double unary_flops(UnaryKind kind) {
  switch (kind) {
    case UnaryKind::kScale:
    case UnaryKind::kSquare:
    case UnaryKind::kReciprocal:
    case UnaryKind::kSqrt:
    case UnaryKind::kRelu:
      return kCheap;
    case UnaryKind::kExp:
    case UnaryKind::kLog:
    case UnaryKind::kTanh:
    case UnaryKind::kGelu:
    case UnaryKind::kGeluTanh:
    case UnaryKind::kSilu:
      break;
  }
  return kNonlinear;
}

// Operations an element, for the ops that work element by element or row by row.
double per_element(const Unary& op) { return unary_flops(op.kind); }
double per_element(const UnaryGrad& op) { return 2 + unary_flops(op.kind); }
double per_element(const Binary&) { return kCheap; }
double per_element(const Reduce&) { return kCheap; }
double per_element(const Expand& op) { return op.scale == 1.0f ? 0 : kCheap; }
double per_element(const Norm&) { return 7; }       // Two sums, subtract, square, scale, shift.
double per_element(const NormGrad&) { return 14; }  // Two row sums, two column sums, combine.
double per_element(const GatedUnit&) { return kNonlinear + 1; }
double per_element(const GatedUnitGrad&) { return kNonlinear + 5; }
double per_element(const Softmax&) { return kNonlinear + 3; }
double per_element(const SoftmaxGrad&) { return 5; }
double per_element(const Rope&) { return 3; }  // Four multiplies and two adds a pair.
double per_element(const CrossEntropy&) { return kNonlinear + 2; }
double per_element(const CrossEntropyGrad&) { return kNonlinear + 2; }
double per_element(const Dropout&) { return 2; }
double per_element(const AdamW&) { return 14; }
double per_element(const Sgd&) { return 5; }
double per_element(const Accumulate&) { return 2; }
double per_element(const Argmax&) { return kCheap; }
double per_element(const Sample&) { return kNonlinear + 4; }
// The rest moves bytes only, or has a formula of its own below.
template <typename AnyOp>
double per_element(const AnyOp&) {
  return 0;
}

template <typename AnyOp>
double flops(const AnyOp& op, Specs in, Specs out) {
  double n = in.empty() ? 0 : elements(in[0]);
  if (!out.empty()) n = std::max(n, elements(out[0]));
  return per_element(op) * n;
}

double flops(const EmbeddingGrad&, Specs in, Specs) { return elements(in[1]); }

double flops(const GlobalNorm&, Specs in, Specs) {
  double n = 0;
  for (const TensorSpec& spec : in) n += 2 * elements(spec);
  return n;
}

double flops(const MatMul& op, Specs in, Specs out) {
  const Shape& a = in[0].shape;
  const std::int64_t rows = op.batched ? a[-2] : a.rows();
  const double k = static_cast<double>(op.transpose_a ? rows : a[-1]);
  double epilogue = (op.has_bias ? 1.0 : 0.0) + (op.has_residual ? 1.0 : 0.0);
  if (op.activation != Activation::kNone) epilogue += kNonlinear;
  return elements(out[0]) * (2 * k + epilogue);
}

// The number of (query, key) pairs of one head over `time` rows: the causal half, or its window.
double causal_pairs(const AttentionShape& shape, std::int64_t time) {
  const double t = static_cast<double>(time);
  const double w = shape.window > 0 ? std::min(t, static_cast<double>(shape.window)) : t;
  return w * (w + 1) / 2 + (t - w) * w;
}

// A pair costs `products` dot products of head_dim, and a softmax.
double attention_flops(const AttentionShape& shape, const TensorSpec& q, double products) {
  const double pairs = static_cast<double>(q.shape[0]) * static_cast<double>(shape.heads) *
                       causal_pairs(shape, q.shape[1]);
  return pairs * (products * 2 * static_cast<double>(shape.head_dim) + kNonlinear);
}

// Forward: q k^T and p v. Backward: those of q k^T again, dv, dp, dq and dk.
double flops(const Attention& op, Specs in, Specs) { return attention_flops(op.shape, in[0], 2); }
double flops(const AttentionGrad& op, Specs in, Specs) {
  return attention_flops(op.shape, in[0], 5);
}

double flops(const CachedAttention& op, Specs in, Specs) {
  const std::int64_t positions = in[2].shape[2];
  const double keys = static_cast<double>(
      op.shape.window > 0 ? std::min<std::int64_t>(positions, op.shape.window) : positions);
  const double rows = static_cast<double>(in[0].shape.rows());
  return rows * keys * static_cast<double>(op.shape.heads) *
         (4 * static_cast<double>(op.shape.head_dim) + kNonlinear);
}

double total_bytes(Specs specs) {
  double bytes = 0;
  for (const TensorSpec& spec : specs) bytes += static_cast<double>(spec.bytes());
  return bytes;
}

// Every input once, every output once, and once more what is written in place.
template <typename AnyOp>
double bytes_moved(const AnyOp& op, Specs in, Specs out) {
  double bytes = total_bytes(in) + total_bytes(out);
  const std::uint32_t written = writes(op, in.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (writes_input(written, i)) bytes += static_cast<double>(in[i].bytes());
  }
  return bytes;
}
// A view of the same bytes.
double bytes_moved(const Reshape&, Specs, Specs) { return 0; }
// What is read is as large as what is written, not the whole input.
double bytes_moved(const Slice&, Specs, Specs out) { return 2 * total_bytes(out); }
double bytes_moved(const GatherRows&, Specs in, Specs out) {
  return 2 * total_bytes(out) + static_cast<double>(in[1].bytes());
}
// One row of the table an id, as it is encoded.
double bytes_moved(const Embedding&, Specs in, Specs out) {
  const TensorSpec& table = in[0];
  const double row = static_cast<double>(table.bytes()) /
                     static_cast<double>(std::max<std::int64_t>(table.shape[0], 1));
  return elements(in[1]) * row + total_bytes(in.last(1)) + total_bytes(out);
}
// Only written, never read.
double bytes_moved(const Fill&, Specs in, Specs) { return total_bytes(in); }
// The new rows once in and once out.
double bytes_moved(const KvAppend& op, Specs in, Specs) {
  const Specs rows = in.first(op.shape.packed ? 1 : 2);
  const double kv = 2.0 * static_cast<double>(in[0].shape.rows()) *
                    static_cast<double>(op.shape.kv_heads) * static_cast<double>(op.shape.head_dim);
  return total_bytes(rows) + kv * static_cast<double>(dtype_size(in[rows.size()].dtype));
}
// Only the new token's count changes.
double bytes_moved(const Sample&, Specs in, Specs out) {
  return total_bytes(in) + total_bytes(out);
}

// A count for people: saturates instead of overflowing.
std::int64_t rounded(double value) {
  return static_cast<std::int64_t>(std::llround(std::min(value, 0x1p62)));
}

}  // namespace

OpCost cost(const Op& op, Specs inputs, Specs outputs) {
  return std::visit(
      [&](const auto& any) {
        return OpCost{rounded(flops(any, inputs, outputs)),
                      rounded(bytes_moved(any, inputs, outputs))};
      },
      op);
}

}  // namespace volta
