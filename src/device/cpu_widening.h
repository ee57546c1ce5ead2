// Widens 16-bit operands for kernels that compute in f32. An input that the kernel cannot read
// itself is widened into scratch memory. The kernel runs, and its results are rounded once, to
// nearest even. Every op works in 16 bits this way. A kernel that reads or writes 16 bits itself
// must give the same bits, except for the dot product of pairs of bf16 (kernels/cpu/matmul.cc).
// Private to CpuDevice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cpu/cpu.h"
#include "ops/op.h"
#include "tensor/view.h"

namespace volta {

/// The operands of one op as its f32 kernel sees them, and the conversions around it.
class CpuWidening {
 public:
  /// Returns nothing if the kernel takes these operands as they are.
  static std::optional<CpuWidening> find(const Op& op, const cpu::ArgShapes& operands);

  /// The shapes and types that the kernel sees.
  cpu::ArgShapes shapes() const { return {inputs_, outputs_}; }
  /// The size of the op's workspace in bytes: first the kernel's own `kernel_bytes`, then the
  /// scratch memory for the f32 copies.
  std::int64_t workspace_bytes(std::int64_t kernel_bytes) const;
  /// Assigns the kernel's workspace and the f32 copies to parts of `workspace`, which has at least
  /// workspace_bytes(kernel_bytes) bytes.
  void place(std::int64_t kernel_bytes, std::span<std::byte> workspace);

  /// The kernel's operands and its own workspace.
  cpu::Args args() const { return {inputs_, outputs_, kernel_workspace_}; }
  /// Converts the 16-bit inputs to f32, before the kernel runs.
  void widen(const cpu::Context& context) const noexcept;
  /// Rounds the f32 results to 16 bits, after the kernel has run.
  void round(const cpu::Context& context) const noexcept;

 private:
  /// An operand of the op and its f32 copy, which is input or output `index` of the kernel.
  struct Copy {
    View narrow;
    std::size_t index = 0;
    std::int64_t offset = 0;  ///< In the scratch memory.
  };

  std::int64_t add_scratch(std::int64_t bytes);

  std::vector<View> inputs_, outputs_;
  std::vector<Copy> widened_, rounded_;
  std::int64_t scratch_bytes_ = 0;
  std::span<std::byte> kernel_workspace_;
};

}  // namespace volta
