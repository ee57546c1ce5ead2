// The bridge from an Op to its CPU kernel. One visit of the Op runs it, one prepares it for many
// runs, and one computes the size of its scratch memory. This is a translation unit of its own
// because each visit instantiates every op. Private to CpuDevice.
#pragma once

#include <cstdint>
#include <memory>

#include "device/cpu_widening.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul.h"
#include "ops/op.h"

namespace volta {

void cpu_dispatch(const Op& op, const cpu::Args& args, const cpu::Context& context) noexcept;
std::int64_t cpu_workspace_bytes(const Op& op, const cpu::ArgShapes& shapes,
                                 const cpu::Context& context);

/// An op with its chosen kernel, for operands whose addresses do not change.
struct CpuKernel {
  void (*compute)(const CpuKernel& self, const cpu::Args& args,
                  const cpu::Context& context) noexcept = nullptr;
  const Op* op = nullptr;
  cpu::Args args;  ///< What `compute` reads and writes, if nothing is converted.
  std::unique_ptr<const cpu::PreparedMatMul> matmul;  ///< Only for a MatMul.
  std::unique_ptr<const CpuWidening> widening;        ///< Only if 16-bit operands are converted.

  void run(const cpu::Context& context) const noexcept;
};
/// Does the work that all runs with the same context share.
CpuKernel cpu_prepare(const Op& op, const cpu::Args& args, const cpu::Context& context);

}  // namespace volta
