// The visits over all ops of the CPU backend.
#include "device/cpu_dispatch.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "device/cpu_widening.h"

namespace volta {
namespace {

// The workspace of the kernel, for operands that it takes as they are.
std::int64_t kernel_workspace_bytes(const Op& op, const cpu::ArgShapes& shapes,
                                    const cpu::Context& context) {
  return std::visit([&](const auto& any) { return cpu::workspace_bytes(any, shapes, context); },
                    op);
}

// Chooses the kernel of an op for operands that it takes as they are.
void choose_kernel(CpuKernel& kernel, const Op& op, const cpu::Args& args,
                   const cpu::Context& context) {
  kernel.op = &op;
  kernel.args = args;
  std::visit(
      [&]<typename AnyOp>(const AnyOp& any) {
        if constexpr (std::is_same_v<AnyOp, MatMul>) {
          kernel.matmul =
              std::make_unique<const cpu::PreparedMatMul>(cpu::prepare(any, args, context));
          kernel.compute = [](const CpuKernel& self, const cpu::Args&,
                              const cpu::Context& now) noexcept { cpu::run(*self.matmul, now); };
        } else {
          // The op has this type, because it was visited with it and ops do not change.
          kernel.compute = [](const CpuKernel& self, const cpu::Args& operands,
                              const cpu::Context& now) noexcept {
            cpu::run(*std::get_if<AnyOp>(self.op), operands, now);
          };
        }
      },
      op);
}

}  // namespace

void CpuKernel::run(const cpu::Context& context) const noexcept {
  if (widening == nullptr) return compute(*this, args, context);
  widening->run(context, [this](const cpu::Args& operands, const cpu::Context& now) {
    compute(*this, operands, now);
  });
}

std::int64_t cpu_workspace_bytes(const Op& op, const cpu::ArgShapes& shapes,
                                 const cpu::Context& context) {
  const auto widening = CpuWidening::find(op, shapes, context);
  if (!widening) return kernel_workspace_bytes(op, shapes, context);
  return widening->workspace_bytes(kernel_workspace_bytes(op, widening->shapes(), context));
}

CpuKernel cpu_prepare(const Op& op, const cpu::Args& args, const cpu::Context& context) {
  CpuKernel kernel;
  auto widening = CpuWidening::find(op, {args.inputs, args.outputs}, context);
  if (!widening) {
    choose_kernel(kernel, op, args, context);
    return kernel;
  }
  widening->place(kernel_workspace_bytes(op, widening->shapes(), context), args.workspace);
  kernel.widening = std::make_unique<const CpuWidening>(*std::move(widening));
  choose_kernel(kernel, op, kernel.widening->args(), context);
  return kernel;
}

void cpu_dispatch(const Op& op, const cpu::Args& args, const cpu::Context& context) noexcept {
  if (CpuWidening::find(op, {args.inputs, args.outputs}, context)) {
    return cpu_prepare(op, args, context).run(context);
  }
  std::visit([&](const auto& any) { cpu::run(any, args, context); }, op);
}

}  // namespace volta
