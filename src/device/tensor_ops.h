// Tensor operations for direct use, without a graph. Each one checks ranks, shapes and types,
// allocates its result on the device and runs at once. They are for tools, tests and small
// programs; models build a graph, which plans its memory once.
//
// All tensors of one call must be in the device's memory. Every function returns kInvalidArgument
// with the operation, the shapes and the types if they do not fit, and kOutOfMemory if the result
// does not fit in memory. Inputs are f32 unless stated otherwise; results are new tensors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "ops/op.h"
#include "tensor/tensor.h"

namespace [[gnu::visibility("default")]] volta {
namespace tensor_ops {

/// Runs any op: infers its outputs, allocates them and the workspace, runs the op and waits. Inputs
/// that the op writes are changed in place. Cast and Encode, which prepare weights, return
/// kInterrupted if the device was told to stop (Device::interrupted()).
Result<std::vector<Tensor>> apply(Device& device, const Op& op, std::span<const Tensor> inputs);

/// Options of matmul: whether an operand is given with its last two axes swapped.
struct MatMulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
};
/// a [.., M, K] times b [K, N]. If both have the same rank >= 3 and the same leading axes, each
/// matrix of a is multiplied by the corresponding matrix of b. Operands are f32, bf16 or f16, the
/// result is f32. Both need rank >= 2.
Result<Tensor> matmul(Device& device, const Tensor& a, const Tensor& b,
                      const MatMulOptions& options = {});

/// Element by element; y's shape is x's, or a suffix of it (a bias), or has one element.
Result<Tensor> add(Device& device, const Tensor& x, const Tensor& y);
Result<Tensor> sub(Device& device, const Tensor& x, const Tensor& y);
Result<Tensor> mul(Device& device, const Tensor& x, const Tensor& y);
Result<Tensor> div(Device& device, const Tensor& x, const Tensor& y);

/// factor * x
Result<Tensor> scale(Device& device, const Tensor& x, float factor);
Result<Tensor> exp(Device& device, const Tensor& x);
Result<Tensor> log(Device& device, const Tensor& x);
Result<Tensor> sqrt(Device& device, const Tensor& x);
Result<Tensor> square(Device& device, const Tensor& x);
Result<Tensor> tanh(Device& device, const Tensor& x);
Result<Tensor> relu(Device& device, const Tensor& x);
/// The exact GELU, x Phi(x); gelu_tanh is GPT-2's approximation of it.
Result<Tensor> gelu(Device& device, const Tensor& x);
Result<Tensor> gelu_tanh(Device& device, const Tensor& x);
Result<Tensor> silu(Device& device, const Tensor& x);

/// softmax(scale * x) along the last axis; needs rank >= 1.
Result<Tensor> softmax(Device& device, const Tensor& x, float scale = 1.0f);
/// Over the last axis of x [.., D]; weight and bias [D].
Result<Tensor> layer_norm(Device& device, const Tensor& x, const Tensor& weight, const Tensor& bias,
                          float eps = 1e-5f);
Result<Tensor> rms_norm(Device& device, const Tensor& x, const Tensor& weight, float eps = 1e-5f);

/// The mean over rows of logsumexp(logits) - logits[target], as f32[]. logits [.., V]. targets are
/// i32 with the shape of logits without the last axis, each in [0, V) or negative. A row with a
/// negative target is left out of the mean. kInvalidArgument for a target >= V, or if no row is
/// left.
Result<Tensor> cross_entropy(Device& device, const Tensor& logits, const Tensor& targets);
/// The mean of (prediction - target)^2 over all elements, as f32[]. Shapes must be equal.
Result<Tensor> mse(Device& device, const Tensor& prediction, const Tensor& target);

/// The index of the largest element of each row, i32 [..]; the first one on ties. Needs rank >= 1.
Result<Tensor> argmax(Device& device, const Tensor& x);
/// Over all elements, as f32[]; or over one axis (negative counts from the end), which is removed.
Result<Tensor> sum(Device& device, const Tensor& x);
Result<Tensor> sum(Device& device, const Tensor& x, int axis);
Result<Tensor> mean(Device& device, const Tensor& x);
Result<Tensor> mean(Device& device, const Tensor& x, int axis);
Result<Tensor> max(Device& device, const Tensor& x);
Result<Tensor> max(Device& device, const Tensor& x, int axis);

/// Swaps the last two axes; needs rank >= 2. Any type.
Result<Tensor> transpose(Device& device, const Tensor& x);
/// The result's axis i is x's axis axes[i]. `axes` must name every axis of x once. Any type.
Result<Tensor> permute(Device& device, const Tensor& x, std::span<const int> axes);
/// Elements [begin, begin + length) of `axis` (negative counts from the end). Any type.
Result<Tensor> slice(Device& device, const Tensor& x, int axis, std::int64_t begin,
                     std::int64_t length);
/// x converted to `dtype`.
Result<Tensor> cast(Device& device, const Tensor& x, DType dtype);
/// x in the device's memory, in the type and the encoding of `spec`, which must have the shape of
/// x. Returns x itself if it is already so. Here, unlike elsewhere, x may be in host memory.
/// Profiles show the ops of this under the label "load".
Result<Tensor> as_spec(Device& device, const Tensor& x, const TensorSpec& spec);
/// The rows of table f[V, D] that ids i32[..] select, as f32 [.., D]. kInvalidArgument for an id
/// outside [0, V).
Result<Tensor> embedding(Device& device, const Tensor& table, const Tensor& ids);
/// A new f32 tensor in which every element is `value`.
Result<Tensor> full(Device& device, const Shape& shape, float value);

}  // namespace tensor_ops
}  // namespace volta
