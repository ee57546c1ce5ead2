// Tensor operations for direct use: each makes one op, or a few, and applies them.
#include "device/tensor_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

#include "base/memory.h"
#include "device/memory_check.h"
#include "ops/rules.h"

namespace volta::tensor_ops {

namespace {

// The specs and views that `apply` gives the device. They must be alive while it runs.
struct Operands {
  std::vector<TensorSpec> specs;
  std::vector<View> views;

  void add(const Tensor& tensor) {
    specs.push_back(tensor.spec());
    views.push_back(tensor.view());
  }
};

// Applies an op and returns its first output.
Result<Tensor> apply_one(Device& device, const Op& op, std::initializer_list<Tensor> inputs) {
  VOLTA_TRY(std::vector<Tensor> outputs, apply(device, op, inputs));
  return std::move(outputs.front());
}

Status need_rank(std::string_view what, const Tensor& x, int rank) {
  if (x.shape().rank() >= rank) return {};
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("{} needs a tensor of rank {} or more, not {}", what, rank, to_string(x.spec())));
}

// The ops that load and round weights. They take seconds for a large weight, and nothing is lost if
// they are given up.
bool prepares_weights(const Op& op) {
  return std::holds_alternative<Cast>(op) || std::holds_alternative<Encode>(op);
}

// A copy in the device's memory, of any encoding.
Result<Tensor> copy_to(Device& device, const Tensor& x) {
  if (!x.host_accessible()) return x.clone_to(device.memory());
  constexpr std::size_t kPiece = std::size_t{32} << 20;  // Bytes between checks for interruption.
  VOLTA_TRY(Tensor copy, Tensor::empty(x.spec(), device.memory()));
  VOLTA_TRY(const std::span<const std::byte> bytes, x.host_bytes());
  for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
    VOLTA_TRY(check_interrupted(device));
    const auto piece = bytes.subspan(at, std::min(kPiece, bytes.size() - at));
    VOLTA_TRY(copy.buffer()->write(copy.offset() + static_cast<std::int64_t>(at), piece));
  }
  return copy;
}

// A negative axis counts from the end.
Result<int> checked_axis(std::string_view what, const Tensor& x, int axis) {
  const int rank = x.shape().rank();
  const int from_start = axis < 0 ? axis + rank : axis;
  if (from_start >= 0 && from_start < rank) return from_start;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: {} has no axis {}", what, to_string(x.spec()), axis));
}

Result<Tensor> reduce_all(Device& device, ReduceKind kind, const Tensor& x) {
  VOLTA_TRY(const Tensor flat, x.reshape(Shape(x.elements())));
  return apply_one(device, Reduce{.kind = kind, .begin = 0, .end = 1}, {flat});
}

Result<Tensor> reduce_axis(Device& device, ReduceKind kind, std::string_view what, const Tensor& x,
                           int axis) {
  VOLTA_TRY(const int begin, checked_axis(what, x, axis));
  return apply_one(device, Reduce{.kind = kind, .begin = begin, .end = begin + 1}, {x});
}

Result<Tensor> unary(Device& device, UnaryKind kind, const Tensor& x, float alpha = 1.0f) {
  return apply_one(device, Unary{.kind = kind, .alpha = alpha}, {x});
}

// How many targets count (are not negative). A target that names no class is an error.
Result<std::int64_t> count_targets(const Tensor& targets, std::int64_t classes) {
  VOLTA_TRY(auto values, try_make_array<std::int32_t>(targets.elements()));
  VOLTA_TRY(targets.read(values.span()));
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < values.size(); ++i) {
    if (values[i] >= classes) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("cross_entropy: target {} is {}, but there are {} classes", i,
                              values[i], classes));
    }
    if (values[i] >= 0) ++count;
  }
  if (count == 0) {
    return fail(ErrorCode::kInvalidArgument,
                "cross_entropy: no row has a target (all are negative, or there are no rows)");
  }
  return count;
}

// Runs an op as tensor_ops::apply() does, under a label for profiles and errors.
Result<std::vector<Tensor>> run_op(Device& device, const Op& op, std::span<const Tensor> inputs,
                                   std::string_view label) {
  Operands in;
  for (const Tensor& input : inputs) in.add(input);
  VOLTA_TRY(const std::vector<TensorSpec> output_specs, infer(op, in.specs));
  if (!device.supports(op, in.specs)) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("device '{}' has no kernel for {}", device.info().id, to_string(op)));
  }
  const std::uint32_t written = writes(op, inputs.size());
  std::vector<TensorUse> uses;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool is_written = writes_input(written, i);
    VOLTA_TRY(
        check_memory(device, inputs[i], is_written, fmt::format("input {} of {}", i, op_name(op))));
    uses.push_back({&inputs[i], is_written});
  }
  if (const auto overlap = find_written_overlap(uses)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: writes its input {}, which shares memory with its input {}: give "
                            "it a copy",
                            to_string(op), overlap->written, overlap->other));
  }

  Operands out;
  std::vector<Tensor> outputs;
  for (const TensorSpec& spec : output_specs) {
    VOLTA_TRY(Tensor output, Tensor::empty(spec, device.memory()));
    out.add(output);
    outputs.push_back(std::move(output));
  }
  const std::int64_t bytes = device.workspace_bytes(op, in.specs, out.specs);
  VOLTA_TRY(const DeviceBuffer workspace, DeviceBuffer::allocate(device.memory(), bytes));
  const OpCall call = {
      .op = &op,
      .inputs = in.views,
      .outputs = out.views,
      // SAFETY: the whole of the buffer above, which outlives the call.
      .workspace = {static_cast<std::byte*>(workspace.data()), static_cast<std::size_t>(bytes)},
      .label = label,
      .may_stop = prepares_weights(op)};
  VOLTA_TRY(device.run(call));
  VOLTA_TRY(device.synchronize());
  return outputs;
}

// Converts or packs a weight that is being loaded. Profiles show all such calls under one label.
Result<Tensor> load_one(Device& device, const Op& op, const Tensor& weight) {
  VOLTA_TRY(std::vector<Tensor> outputs, run_op(device, op, std::span(&weight, 1), "load"));
  return std::move(outputs.front());
}

}  // namespace

Result<std::vector<Tensor>> apply(Device& device, const Op& op, std::span<const Tensor> inputs) {
  return run_op(device, op, inputs, {});
}

Result<Tensor> matmul(Device& device, const Tensor& a, const Tensor& b,
                      const MatMulOptions& options) {
  VOLTA_TRY(need_rank("matmul", a, 2));
  VOLTA_TRY(need_rank("matmul", b, 2));
  const MatMul op = {.transpose_a = options.transpose_a,
                     .transpose_b = options.transpose_b,
                     .batched = b.shape().rank() > 2};
  return apply_one(device, op, {a, b});
}

Result<Tensor> add(Device& device, const Tensor& x, const Tensor& y) {
  return apply_one(device, Binary{BinaryKind::kAdd}, {x, y});
}
Result<Tensor> sub(Device& device, const Tensor& x, const Tensor& y) {
  return apply_one(device, Binary{BinaryKind::kSub}, {x, y});
}
Result<Tensor> mul(Device& device, const Tensor& x, const Tensor& y) {
  return apply_one(device, Binary{BinaryKind::kMul}, {x, y});
}
Result<Tensor> div(Device& device, const Tensor& x, const Tensor& y) {
  return apply_one(device, Binary{BinaryKind::kDiv}, {x, y});
}

Result<Tensor> scale(Device& device, const Tensor& x, float factor) {
  return unary(device, UnaryKind::kScale, x, factor);
}
Result<Tensor> exp(Device& device, const Tensor& x) { return unary(device, UnaryKind::kExp, x); }
Result<Tensor> log(Device& device, const Tensor& x) { return unary(device, UnaryKind::kLog, x); }
Result<Tensor> sqrt(Device& device, const Tensor& x) { return unary(device, UnaryKind::kSqrt, x); }
Result<Tensor> square(Device& device, const Tensor& x) {
  return unary(device, UnaryKind::kSquare, x);
}
Result<Tensor> tanh(Device& device, const Tensor& x) { return unary(device, UnaryKind::kTanh, x); }
Result<Tensor> relu(Device& device, const Tensor& x) { return unary(device, UnaryKind::kRelu, x); }
Result<Tensor> gelu(Device& device, const Tensor& x) { return unary(device, UnaryKind::kGelu, x); }
Result<Tensor> gelu_tanh(Device& device, const Tensor& x) {
  return unary(device, UnaryKind::kGeluTanh, x);
}
Result<Tensor> silu(Device& device, const Tensor& x) { return unary(device, UnaryKind::kSilu, x); }

Result<Tensor> softmax(Device& device, const Tensor& x, float scale) {
  VOLTA_TRY(need_rank("softmax", x, 1));
  return apply_one(device, Softmax{scale}, {x});
}

Result<Tensor> layer_norm(Device& device, const Tensor& x, const Tensor& weight, const Tensor& bias,
                          float eps) {
  VOLTA_TRY(need_rank("layer_norm", x, 1));
  const Norm op = {.kind = NormKind::kLayer, .has_bias = true, .eps = eps};
  return apply_one(device, op, {x, weight, bias});
}

Result<Tensor> rms_norm(Device& device, const Tensor& x, const Tensor& weight, float eps) {
  VOLTA_TRY(need_rank("rms_norm", x, 1));
  return apply_one(device, Norm{.kind = NormKind::kRms, .eps = eps}, {x, weight});
}

Result<Tensor> cross_entropy(Device& device, const Tensor& logits, const Tensor& targets) {
  VOLTA_TRY(need_rank("cross_entropy", logits, 1));
  const std::array specs = {logits.spec(), targets.spec()};
  VOLTA_TRY(infer(CrossEntropy{}, specs));
  VOLTA_TRY(const std::int64_t count, count_targets(targets, logits.shape().columns()));
  VOLTA_TRY(const Tensor losses, apply_one(device, CrossEntropy{}, {logits, targets}));
  VOLTA_TRY(const Tensor total, sum(device, losses));
  return scale(device, total, 1.0f / static_cast<float>(count));
}

Result<Tensor> mse(Device& device, const Tensor& prediction, const Tensor& target) {
  if (prediction.shape() != target.shape()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("mse: the prediction is {}, but the target is {}",
                            to_string(prediction.spec()), to_string(target.spec())));
  }
  VOLTA_TRY(const Tensor difference, sub(device, prediction, target));
  VOLTA_TRY(const Tensor squares, square(device, difference));
  return mean(device, squares);
}

Result<Tensor> argmax(Device& device, const Tensor& x) {
  VOLTA_TRY(need_rank("argmax", x, 1));
  return apply_one(device, Argmax{}, {x});
}

Result<Tensor> sum(Device& device, const Tensor& x) {
  return reduce_all(device, ReduceKind::kSum, x);
}
Result<Tensor> sum(Device& device, const Tensor& x, int axis) {
  return reduce_axis(device, ReduceKind::kSum, "sum", x, axis);
}
Result<Tensor> mean(Device& device, const Tensor& x) {
  return reduce_all(device, ReduceKind::kMean, x);
}
Result<Tensor> mean(Device& device, const Tensor& x, int axis) {
  return reduce_axis(device, ReduceKind::kMean, "mean", x, axis);
}
Result<Tensor> max(Device& device, const Tensor& x) {
  return reduce_all(device, ReduceKind::kMax, x);
}
Result<Tensor> max(Device& device, const Tensor& x, int axis) {
  return reduce_axis(device, ReduceKind::kMax, "max", x, axis);
}

Result<Tensor> transpose(Device& device, const Tensor& x) {
  VOLTA_TRY(need_rank("transpose", x, 2));
  const int rank = x.shape().rank();
  std::array<int, kMaxRank> axes = {0, 1, 2, 3, 4, 5};
  std::swap(axes[static_cast<std::size_t>(rank - 2)], axes[static_cast<std::size_t>(rank - 1)]);
  return permute(device, x, std::span(axes).first(static_cast<std::size_t>(rank)));
}

Result<Tensor> permute(Device& device, const Tensor& x, std::span<const int> axes) {
  if (axes.size() != static_cast<std::size_t>(x.shape().rank())) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("permute: {} axes are given for {}", axes.size(), to_string(x.spec())));
  }
  Permute op;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    VOLTA_TRY(const int axis, checked_axis("permute", x, axes[i]));
    op.perm[i] = static_cast<std::int8_t>(axis);
  }
  return apply_one(device, op, {x});
}

Result<Tensor> slice(Device& device, const Tensor& x, int axis, std::int64_t begin,
                     std::int64_t length) {
  VOLTA_TRY(const int from_start, checked_axis("slice", x, axis));
  return apply_one(device, Slice{.axis = from_start, .begin = begin, .length = length}, {x});
}

Result<Tensor> cast(Device& device, const Tensor& x, DType dtype) {
  return apply_one(device, Cast{dtype}, {x});
}

Result<Tensor> as_spec(Device& device, const Tensor& x, const TensorSpec& spec) {
  const auto there = [&](const Tensor& tensor) {
    return tensor.buffer() != nullptr && tensor.buffer()->owner() == device.memory();
  };
  if (x.spec() == spec) return there(x) ? Result<Tensor>(x) : copy_to(device, x);
  // A device that works in host memory reads other host memory (a mapped file) in place.
  Tensor out = x;
  if (!there(x) && device.memory() != host_memory()) {
    VOLTA_TRY(out, copy_to(device, x));
  }
  const bool integers = x.spec().encoding.quantized() || spec.encoding.quantized();
  if (out.dtype() != spec.dtype && !integers) {
    VOLTA_TRY(out, load_one(device, Cast{spec.dtype}, out));
  }
  if (out.spec().encoding == spec.encoding) return out;
  return load_one(device, Encode{spec.encoding}, out);
}

Result<Tensor> embedding(Device& device, const Tensor& table, const Tensor& ids) {
  VOLTA_TRY(need_rank("embedding", table, 2));
  return apply_one(device, Embedding{}, {table, ids});
}

Result<Tensor> full(Device& device, const Shape& shape, float value) {
  VOLTA_TRY(Tensor tensor, Tensor::empty({DType::kF32, shape}, device.memory()));
  VOLTA_TRY(apply(device, Fill{value}, std::span(&tensor, 1)));
  return tensor;
}

}  // namespace volta::tensor_ops
