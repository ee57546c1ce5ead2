// The visits over all ops of the CUDA backend.
#include "device/cuda_dispatch.h"

#include <cstdint>
#include <span>
#include <variant>

namespace volta {

cudaError_t cuda_run(const Op& op, const cuda::Args& args, const cuda::Context& context) noexcept {
  return std::visit([&](const auto& any) { return cuda::run(any, args, context); }, op);
}

std::int64_t cuda_workspace_bytes(const Op& op, const cuda::ArgShapes& shapes,
                                  const cuda::Context& context) {
  return std::visit([&](const auto& any) { return cuda::workspace_bytes(any, shapes, context); },
                    op);
}

bool cuda_supports(const Op& op, std::span<const TensorSpec> inputs) {
  return std::visit([&](const auto& any) { return cuda::supports(any, inputs); }, op);
}

}  // namespace volta
