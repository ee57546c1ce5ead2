// The visits over all ops of the CPU backend.
#include "device/cpu_dispatch.h"

#include <memory>
#include <type_traits>
#include <variant>

namespace volta {

void cpu_dispatch(const Op& op, const cpu::Args& args, const cpu::Context& context) noexcept {
  std::visit([&](const auto& any) { cpu::run(any, args, context); }, op);
}

std::int64_t cpu_workspace_bytes(const Op& op, const cpu::ArgShapes& shapes,
                                 const cpu::Context& context) {
  return std::visit([&](const auto& any) { return cpu::workspace_bytes(any, shapes, context); },
                    op);
}

CpuKernel cpu_prepare(const Op& op, const cpu::Args& args, const cpu::Context& context) {
  CpuKernel kernel;
  kernel.op = &op;
  kernel.args = args;
  std::visit(
      [&]<typename AnyOp>(const AnyOp& any) {
        if constexpr (std::is_same_v<AnyOp, MatMul>) {
          kernel.matmul =
              std::make_unique<const cpu::PreparedMatMul>(cpu::prepare(any, args, context));
          kernel.run = [](const CpuKernel& self, const cpu::Context& now) noexcept {
            cpu::run(*self.matmul, now);
          };
        } else {
          // The op is of this type: it is what was visited, and attributes never change.
          kernel.run = [](const CpuKernel& self, const cpu::Context& now) noexcept {
            cpu::run(*std::get_if<AnyOp>(self.op), self.args, now);
          };
        }
      },
      op);
  return kernel;
}

}  // namespace volta
