// The two visits over all ops of the CPU backend.
#include "device/cpu_dispatch.h"

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

}  // namespace volta
