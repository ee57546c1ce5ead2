// Runs ops and graphs for the op cases: on CPU devices of every instruction set and several numbers
// of threads, and in double by the reference.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/rng.h"
#include "device/cpu_device.h"
#include "graph/graph.h"
#include "ops/op_case.h"
#include "tensor/tensor.h"

namespace volta::op_test {

/// The instruction sets that this machine has.
const std::vector<cpu::Simd>& available_simd();
/// One device for each pair, made once.
CpuDevice& device(cpu::Simd simd, int threads);

/// The first GPU; null if none can be used, then tests of it skip.
Device* gpu();

/// A host tensor with the values of `array`.
Tensor to_tensor(const Array& array);
/// The elements of a host tensor in double.
std::vector<double> to_doubles(const Tensor& tensor);
/// The bytes of a host tensor.
std::span<const std::byte> bytes_of(const Tensor& tensor);

/// One op on fresh tensors: outputs start as NaN bytes, as does the workspace.
struct OpRun {
  std::vector<Tensor> inputs, outputs;
  Status status;
  /// The outputs, then the inputs that the op writes.
  std::vector<Tensor> results;
};
/// How run_op places the operands.
struct Placement {
  int lend = -1;       ///< Output 0 takes the memory of this input; with -1 it has its own.
  bool shift = false;  ///< Every operand begins one element after an aligned address.
};
/// Runs on a device with any kind of memory. The tensors of the result are in host memory.
OpRun run_op_on(Device& device, const Op& op, const std::vector<Array>& inputs,
                const Placement& placement = {});
/// The same with encoded inputs in this device's own panels, in place of input `lend`.
OpRun run_op(CpuDevice& device, const Op& op, const std::vector<Array>& inputs, int lend = -1);
/// Whether the device has a kernel for the op on these inputs.
bool supported(const Device& device, const Op& op, const std::vector<Array>& inputs);

/// What the reference gives for the same: outputs, then written inputs.
std::vector<Array> reference_results(const Op& op, std::vector<Array> inputs);

/// Checks every element against its bound; NaN and infinities must agree.
void expect_close(const Tensor& got, const Array& expected, const std::string& what);

/// The values of all graph values, in double by the reference. With `noise`, every result of a node
/// is moved to one end of its bound, at random.
std::vector<Array> interpret(const Graph& graph, const std::vector<Array>& bound,
                             RandomSequence* noise);

}  // namespace volta::op_test
