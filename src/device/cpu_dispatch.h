// The bridge from an Op to its CPU kernel: one visit to run it, one to ask for its scratch memory.
// A translation unit of its own, because each visit instantiates every op. Private to CpuDevice.
#pragma once

#include <cstdint>

#include "kernels/cpu/cpu.h"
#include "ops/op.h"

namespace volta {

void cpu_dispatch(const Op& op, const cpu::Args& args, const cpu::Context& context) noexcept;
std::int64_t cpu_workspace_bytes(const Op& op, const cpu::ArgShapes& shapes,
                                 const cpu::Context& context);

}  // namespace volta
