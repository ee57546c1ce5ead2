// The bridge from an Op to its CPU kernel: one visit to run it, one to prepare it for many runs,
// one to ask for its scratch memory. A translation unit of its own, because each visit instantiates
// every op. Private to CpuDevice.
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

/// An op whose kernel is chosen, for operands that stay where they are.
struct CpuKernel {
  void (*compute)(const CpuKernel& self, const cpu::Context& context) noexcept = nullptr;
  const Op* op = nullptr;
  cpu::Args args;                                     ///< What `compute` reads and writes.
  std::unique_ptr<const cpu::PreparedMatMul> matmul;  ///< Of a MatMul.
  std::unique_ptr<const CpuWidening> widening;        ///< Where it has 16-bit operands.

  void run(const cpu::Context& context) const noexcept;
};
/// Makes once what every run with the same context shares.
CpuKernel cpu_prepare(const Op& op, const cpu::Args& args, const cpu::Context& context);

}  // namespace volta
