// CpuWidening: which operands get f32 copies, where the copies are, the blocks of rows, and the
// conversions.
#include "device/cpu_widening.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include "base/arithmetic.h"
#include "base/parallel.h"
#include "kernels/cpu/matmul_plan.h"
#include "kernels/cpu/split.h"
#include "ops/rules.h"
#include "tensor/dtype.h"

namespace volta {
namespace {

constexpr std::int64_t kAlignment = 64;
/// Of the ops that run in blocks.
constexpr std::size_t kMostOperands = 4;

/// Which 16-bit operands an op's kernel reads and writes itself. Bit i of `inputs` is for input i.
struct Native {
  std::uint32_t inputs = 0;
  bool outputs = false;
};
constexpr Native kEverything = {.inputs = ~0u, .outputs = true};

/// An op that is not named here is treated as if its kernel supported only f32. This is always
/// right, but costs needless conversions if the kernel supports more.
struct FindNative {
  const cpu::ArgShapes& operands;

  Native operator()(const MatMul&) const {
    return {.inputs = 0b11, .outputs = !operands.inputs[1].encoding.quantized()};
  }
  Native operator()(const Norm&) const { return {.inputs = 0b110}; }
  Native operator()(const NormGrad&) const { return {.inputs = 0b10}; }
  Native operator()(const Embedding&) const { return {.inputs = 0b1}; }
  Native operator()(const KvAppend& op) const { return {.inputs = effects(op).writes}; }
  Native operator()(const CachedAttention&) const { return {.inputs = 0b110}; }
  Native operator()(const Reshape&) const { return kEverything; }
  Native operator()(const Permute&) const { return kEverything; }
  Native operator()(const Slice&) const { return kEverything; }
  Native operator()(const Pad&) const { return kEverything; }
  Native operator()(const Cast&) const { return kEverything; }
  Native operator()(const Encode&) const { return kEverything; }
  Native operator()(const auto&) const { return {}; }
};

/// The operands of an op that have a row for each row of input 0, if every row of the results
/// follows from the same row of these operands and from nothing else but the other operands. The
/// rows of an op on elements are single elements.
struct Rows {
  std::uint32_t inputs = 0;
  std::uint32_t outputs = 0;
  bool elements = false;
};

/// An op that is not named here is not cut into blocks. This is always right.
struct FindRows {
  const cpu::ArgShapes& operands;

  std::optional<Rows> operator()(const Unary&) const { return Rows{0b1, 0b1, true}; }
  std::optional<Rows> operator()(const UnaryGrad&) const { return Rows{0b11, 0b1, true}; }
  std::optional<Rows> operator()(const Binary&) const {
    if (operands.inputs[0].shape != operands.inputs[1].shape) return std::nullopt;
    return Rows{0b11, 0b1, true};
  }
  std::optional<Rows> operator()(const GatedUnit&) const { return Rows{0b11, 0b1, true}; }
  std::optional<Rows> operator()(const GatedUnitGrad&) const { return Rows{0b111, 0b11, true}; }
  std::optional<Rows> operator()(const Norm&) const { return Rows{0b1, 0b11}; }
  std::optional<Rows> operator()(const Softmax&) const { return Rows{0b1, 0b1}; }
  std::optional<Rows> operator()(const SoftmaxGrad&) const { return Rows{0b11, 0b1}; }
  std::optional<Rows> operator()(const CrossEntropy&) const { return Rows{0b11, 0b11}; }
  std::optional<Rows> operator()(const CrossEntropyGrad&) const { return Rows{0b1111, 0b1}; }
  std::optional<Rows> operator()(const auto&) const { return std::nullopt; }
};

/// The f32 copies of a block fit L2, and conversions of a block take a few microseconds.
constexpr std::int64_t kBlockElements = 8 * 1024;

bool is_narrow(const View& view) { return is_float(view.dtype) && view.dtype != DType::kF32; }

void convert(const View& from, const View& to, const cpu::Context& context) {
  const std::array inputs = {from};
  const std::array outputs = {to};
  cpu::run(Cast{to.dtype}, {inputs, outputs, {}}, context);
}

/// A pool of the calling thread alone, for what runs in a part of another pool's job.
ThreadPool& calling_thread() {
  static ThreadPool pool = *ThreadPool::create(1);  // Creates no thread, so it cannot fail.
  return pool;
}

std::int64_t row_elements(const View& operand, std::int64_t rows) {
  return operand.shape.elements() / rows;
}

/// Rows [first, first + count) of an operand with `rows` rows. The address of one that has none
/// stays null.
View rows_of(const View& operand, std::int64_t rows, std::int64_t first, std::int64_t count) {
  const std::int64_t elements = row_elements(operand, rows);
  auto* data = static_cast<std::byte*>(operand.data);
  // SAFETY: the rows are inside the operand, and elements are whole bytes.
  if (data != nullptr) data += first * elements * dtype_size(operand.dtype);
  return {data, {operand.dtype, Shape(count, elements)}};
}

}  // namespace

CpuWidening::Blocks CpuWidening::find_blocks(const Op& op, const cpu::ArgShapes& operands,
                                             const cpu::Context& context) {
  const std::optional<Rows> found = std::visit(FindRows{operands}, op);
  const Shape& shape = operands.inputs[0].shape;
  if (!found || shape.elements() == 0) return {};
  Blocks blocks;
  blocks.rows = found->elements ? shape.elements() : shape.rows();
  blocks.block_rows =
      std::clamp<std::int64_t>(kBlockElements / (shape.elements() / blocks.rows), 1, blocks.rows);
  blocks.inputs = found->inputs;
  blocks.outputs = found->outputs;
  const std::int64_t wanted = ceil_div(shape.elements(), cpu::kElementGrain);
  blocks.parts = std::min({wanted, blocks.count(), std::int64_t{context.pool->threads()}});
  return blocks;
}

std::optional<CpuWidening> CpuWidening::find(const Op& op, const cpu::ArgShapes& operands,
                                             const cpu::Context& context) {
  const bool any_narrow = std::ranges::any_of(operands.inputs, is_narrow) ||
                          std::ranges::any_of(operands.outputs, is_narrow);
  if (!any_narrow) return std::nullopt;
  const Native native = std::visit(FindNative{operands}, op);
  CpuWidening widening;
  widening.blocks_ = find_blocks(op, operands, context);
  widening.inputs_.assign(operands.inputs.begin(), operands.inputs.end());
  widening.outputs_.assign(operands.outputs.begin(), operands.outputs.end());
  for (std::size_t i = 0; i < widening.inputs_.size(); ++i) {
    View& view = widening.inputs_[i];
    if (!is_narrow(view) || in_mask(native.inputs, i)) continue;
    Copy copy{.narrow = view, .index = i};
    view = View(nullptr, {DType::kF32, view.shape});
    copy.offset = widening.add_scratch(widening.copy_bytes(view));
    widening.widened_.push_back(copy);
  }
  for (std::size_t i = 0; i < widening.outputs_.size(); ++i) {
    View& view = widening.outputs_[i];
    if (!is_narrow(view) || native.outputs) continue;
    Copy copy{.narrow = view, .index = i};
    view = View(nullptr, {DType::kF32, view.shape});
    // The result may use the memory of an input's copy, because nothing else reads that.
    const auto lender = std::ranges::find_if(widening.widened_, [&](const Copy& input) {
      return i == 0 && may_alias(op, input.index) &&
             input.narrow.shape.elements() == view.shape.elements();
    });
    copy.offset = lender != widening.widened_.end()
                      ? lender->offset
                      : widening.add_scratch(widening.copy_bytes(view));
    widening.rounded_.push_back(copy);
  }
  if (widening.widened_.empty() && widening.rounded_.empty()) return std::nullopt;
  return widening;
}

std::int64_t CpuWidening::add_scratch(std::int64_t bytes) {
  const std::int64_t offset = scratch_bytes_;
  scratch_bytes_ += round_up(bytes, kAlignment);
  return offset;
}

std::int64_t CpuWidening::copy_bytes(const View& operand) const {
  if (blocks_.rows == 0) return operand.bytes();
  return row_elements(operand, blocks_.rows) * blocks_.block_rows *
         static_cast<std::int64_t>(sizeof(float));
}

std::int64_t CpuWidening::workspace_bytes(std::int64_t kernel_bytes) const {
  return blocks_.parts * (round_up(kernel_bytes, kAlignment) + scratch_bytes_);
}

void CpuWidening::place(std::int64_t kernel_bytes, std::span<std::byte> workspace) {
  kernel_workspace_ = workspace.first(static_cast<std::size_t>(kernel_bytes));
  // SAFETY: the workspace holds workspace_bytes(kernel_bytes) and is aligned to 64 bytes. Each part
  // has part_bytes_ of it: the kernel's own bytes, rounded up to 64, then every copy at its offset,
  // a multiple of 64, too.
  part_bytes_ = round_up(kernel_bytes, kAlignment) + scratch_bytes_;
  scratch_ = workspace.data() + round_up(kernel_bytes, kAlignment);
  if (blocks_.rows > 0) return;
  for (const Copy& copy : widened_) inputs_[copy.index].data = scratch_ + copy.offset;
  for (const Copy& copy : rounded_) outputs_[copy.index].data = scratch_ + copy.offset;
}

void CpuWidening::run(const cpu::Context& context, Kernel kernel) const noexcept {
  if (blocks_.rows > 0) {
    parallel_chunks(*context.pool, blocks_.parts, [&](std::int64_t part) {
      const std::int64_t end = part_begin(blocks_.count(), blocks_.parts, part + 1);
      for (std::int64_t block = part_begin(blocks_.count(), blocks_.parts, part); block < end;
           ++block) {
        run_block(part, block, context, kernel);
      }
    });
    return;
  }
  for (const Copy& copy : widened_) convert(copy.narrow, inputs_[copy.index], context);
  kernel(args(), context);
  for (const Copy& copy : rounded_) convert(outputs_[copy.index], copy.narrow, context);
}

void CpuWidening::run_block(std::int64_t part, std::int64_t block, const cpu::Context& context,
                            Kernel kernel) const noexcept {
  const std::int64_t first = block * blocks_.block_rows;
  const std::int64_t count = std::min(blocks_.block_rows, blocks_.rows - first);
  const auto rows_in = [&](const View& operand) {
    return rows_of(operand, blocks_.rows, first, count);
  };
  std::array<View, kMostOperands> inputs, outputs;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    inputs[i] = in_mask(blocks_.inputs, i) ? rows_in(inputs_[i]) : inputs_[i];
  }
  for (std::size_t i = 0; i < outputs_.size(); ++i) outputs[i] = rows_in(outputs_[i]);
  // SAFETY: see place().
  std::byte* const scratch = scratch_ + part * part_bytes_;
  const std::span<std::byte> workspace(kernel_workspace_.data() + part * part_bytes_,
                                       kernel_workspace_.size());
  for (const Copy& copy : widened_) inputs[copy.index].data = scratch + copy.offset;
  for (const Copy& copy : rounded_) outputs[copy.index].data = scratch + copy.offset;

  std::atomic<std::int64_t> bad_index = 0;
  cpu::Context alone = context;
  alone.pool = &calling_thread();
  alone.bad_index = &bad_index;
  alone.interrupted = nullptr;  // A block ends soon.
  for (const Copy& copy : widened_) convert(rows_in(copy.narrow), inputs[copy.index], alone);
  kernel({std::span(inputs).first(inputs_.size()), std::span(outputs).first(outputs_.size()),
          workspace},
         alone);
  for (const Copy& copy : rounded_) convert(outputs[copy.index], rows_in(copy.narrow), alone);
  const std::int64_t bad = bad_index.load(std::memory_order_relaxed);
  // The element of an index tensor with one index a row.
  if (bad != 0) cpu::report_bad_index(context, first + bad - 1);
}

}  // namespace volta
