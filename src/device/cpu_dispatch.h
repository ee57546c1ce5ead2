// The bridge from an Op to its CPU kernel: one visit to run it, one to prepare it for many runs,
// one to ask for its scratch memory. A translation unit of its own, because each visit instantiates
// every op. Private to CpuDevice.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul.h"
#include "ops/op.h"

namespace volta {

void cpu_dispatch(const Op& op, const cpu::Args& args, const cpu::Context& context) noexcept;
std::int64_t cpu_workspace_bytes(const Op& op, const cpu::ArgShapes& shapes,
                                 const cpu::Context& context);

/// An op whose kernel is chosen, for operands that stay where they are.
struct CpuKernel {
  void (*run)(const CpuKernel& self, const cpu::Context& context) noexcept = nullptr;
  const Op* op = nullptr;
  cpu::Args args;
  std::unique_ptr<const cpu::PreparedMatMul> matmul;  ///< Of a MatMul.
};
/// Makes once what every run with the same context shares.
CpuKernel cpu_prepare(const Op& op, const cpu::Args& args, const cpu::Context& context);

}  // namespace volta
