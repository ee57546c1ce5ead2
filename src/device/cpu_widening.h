// Widens 16-bit operands for kernels that compute in f32. An input that the kernel cannot read
// itself is widened into scratch memory. The kernel runs, and its results are rounded once, to
// nearest even. Every op works in 16 bits this way. A kernel that reads or writes 16 bits itself
// must give the same bits, except for the dot product of pairs of bf16 (kernels/cpu/matmul.cc).
//
// Ops that compute each row by itself run in blocks of rows, each of which one thread widens,
// computes and rounds while it is in the thread's own caches. They are bound by the 16-bit operands
// in memory then, not by the copies, which are twice as large and read or written twice. Private to
// CpuDevice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/arithmetic.h"
#include "base/function_ref.h"
#include "kernels/cpu/cpu.h"
#include "ops/op.h"
#include "tensor/view.h"

namespace volta {

/// The operands of one op as its f32 kernel sees them, and the conversions around it.
class CpuWidening {
 public:
  /// Returns nothing if the kernel takes these operands as they are.
  static std::optional<CpuWidening> find(const Op& op, const cpu::ArgShapes& operands,
                                         const cpu::Context& context);

  /// The shapes and types that the kernel sees.
  cpu::ArgShapes shapes() const { return {inputs_, outputs_}; }
  /// The size of the op's workspace in bytes: for each part, the kernel's own `kernel_bytes`, then
  /// the scratch memory for the f32 copies.
  std::int64_t workspace_bytes(std::int64_t kernel_bytes) const;
  /// Assigns the kernel's workspace and the f32 copies to parts of `workspace`, which has at least
  /// workspace_bytes(kernel_bytes) bytes.
  void place(std::int64_t kernel_bytes, std::span<std::byte> workspace);

  /// The kernel's operands and its own workspace.
  cpu::Args args() const { return {inputs_, outputs_, kernel_workspace_}; }

  using Kernel = FunctionRef<void(const cpu::Args& args, const cpu::Context& context)>;
  /// Converts the 16-bit inputs to f32, runs the kernel, and rounds its results to 16 bits.
  void run(const cpu::Context& context, Kernel kernel) const noexcept;

 private:
  /// An operand of the op and its f32 copy, which is input or output `index` of the kernel.
  struct Copy {
    View narrow;
    std::size_t index = 0;
    std::int64_t offset = 0;  ///< In the scratch memory (of a part, if there are blocks).
  };
  /// How rows are shared. Without blocks, `rows` is 0.
  struct Blocks {
    std::int64_t rows = 0;        ///< Of all operands that have rows.
    std::int64_t block_rows = 0;  ///< Of a block.
    std::int64_t parts = 1;       ///< Each has a workspace and scratch memory of its own.
    std::uint32_t inputs = 0;     ///< Bit i: input i has rows; the others are read whole.
    std::uint32_t outputs = 0;
    std::int64_t count() const { return ceil_div(rows, block_rows); }
  };
  static Blocks find_blocks(const Op& op, const cpu::ArgShapes& operands,
                            const cpu::Context& context);

  std::int64_t add_scratch(std::int64_t bytes);
  /// The bytes of an operand's f32 copy: of all of it, or of the rows of a block.
  std::int64_t copy_bytes(const View& operand) const;
  void run_block(std::int64_t part, std::int64_t block, const cpu::Context& context,
                 Kernel kernel) const noexcept;

  std::vector<View> inputs_, outputs_;
  std::vector<Copy> widened_, rounded_;
  Blocks blocks_;
  std::int64_t scratch_bytes_ = 0;         ///< Of one part.
  std::int64_t part_bytes_ = 0;            ///< With the kernel's workspace.
  std::span<std::byte> kernel_workspace_;  ///< Of the first part, as scratch_.
  std::byte* scratch_ = nullptr;
};

}  // namespace volta
