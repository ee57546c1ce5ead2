// The CUDA backend's entry points: one `run` per op, on raw views in a GPU's memory. A `run`
// submits its kernels to the context's stream and returns; it allocates nothing and waits for
// nothing, so that a plan can be captured as a CUDA graph. infer checked shapes and types when the
// plan was made. C++20-clean, because nvcc compiles the kernels. Only src/device turns a
// cudaError_t into an Error.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/op.h"
#include "tensor/tensor_spec.h"
#include "tensor/view.h"

namespace volta::cuda {

/// The value of the fault word while no kernel has reported a fault.
inline constexpr unsigned long long kNoFault = ~0ull;
/// Bits of the fault word that hold the index of the offending element. The bits above hold the
/// number of the call.
inline constexpr int kFaultElementBits = 32;

/// What an op gets besides its operands.
struct Context {
  cudaStream_t stream = nullptr;
  int multiprocessors = 1;
  /// The compute capability to use, e.g. 80 or 90. At most that of the GPU; VOLTA_CUDA_ARCH lowers
  /// it.
  int architecture = 80;
  /// A word in the GPU's memory. A kernel that finds an index out of range reports the call and
  /// the element there (common.cuh), uses a defined value, and goes on. The least word is kept, so
  /// that the report does not depend on timing.
  unsigned long long* fault = nullptr;
  unsigned long long call = 0;  ///< The number of the call, for reports.
  /// Bit i: no call of the plan writes input i. Then a kernel may read it before the kernels in
  /// front of it have ended (launch.cuh).
  std::uint32_t steady_inputs = 0;
  /// Whether a kernel may begin before the one in front of it has ended. Not for the first kernel
  /// of a plan, so that the others can rely on all that was submitted before the plan.
  bool begins_early = false;
};

/// Whether input `input` of a call is one of the steady ones.
constexpr bool is_steady(std::uint32_t steady_inputs, std::size_t input) {
  return input < 32 && (steady_inputs >> input & 1u) != 0;
}

/// The operands of one op, in the order of its comment in ops/op.h. Addresses of operands are
/// multiples of their element's size; kernels that want more alignment check it.
struct Args {
  std::span<const View> inputs;
  std::span<const View> outputs;
  std::span<std::byte> workspace;  ///< At least workspace_bytes(), 256-byte aligned.
};

/// The shapes of the operands, for workspace sizes. Data pointers are null.
struct ArgShapes {
  std::span<const View> inputs;
  std::span<const View> outputs;
};

// For each op: run(), the number of scratch bytes that it needs (0 if none), and whether the
// kernels take inputs of these types and encodings, which infer has accepted. There are no
// defaults, so a forgotten one is a link error that names the op.
#define VOLTA_DECLARE_CUDA_KERNEL(Name)                                                          \
  cudaError_t run(const Name& op, const Args& args, const Context& context) noexcept;            \
  std::int64_t workspace_bytes(const Name& op, const ArgShapes& shapes, const Context& context); \
  bool supports(const Name& op, std::span<const TensorSpec> inputs);
VOLTA_OPS(VOLTA_DECLARE_CUDA_KERNEL)
#undef VOLTA_DECLARE_CUDA_KERNEL

}  // namespace volta::cuda
