// CpuWidening: which operands get f32 copies, where the copies are, and the conversions.
#include "device/cpu_widening.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include "base/arithmetic.h"
#include "ops/rules.h"
#include "tensor/dtype.h"

namespace volta {
namespace {

constexpr std::int64_t kAlignment = 64;

/// Which 16-bit operands an op's kernel reads and writes itself. Bit i of `inputs` is for input i.
struct Native {
  std::uint32_t inputs = 0;
  bool outputs = false;
};
constexpr Native kEverything = {.inputs = ~0u, .outputs = true};

/// An op that is not named here is treated as if its kernel supported only f32. This is always
/// right, but costs needless conversions if the kernel supports more.
struct FindNative {
  Native operator()(const MatMul&) const { return {.inputs = 0b11}; }
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

bool is_narrow(const View& view) { return is_float(view.dtype) && view.dtype != DType::kF32; }

void convert(const View& from, const View& to, const cpu::Context& context) {
  const std::array inputs = {from};
  const std::array outputs = {to};
  cpu::run(Cast{to.dtype}, {inputs, outputs, {}}, context);
}

}  // namespace

std::optional<CpuWidening> CpuWidening::find(const Op& op, const cpu::ArgShapes& operands) {
  const bool any_narrow = std::ranges::any_of(operands.inputs, is_narrow) ||
                          std::ranges::any_of(operands.outputs, is_narrow);
  if (!any_narrow) return std::nullopt;
  const Native native = std::visit(FindNative(), op);
  CpuWidening widening;
  widening.inputs_.assign(operands.inputs.begin(), operands.inputs.end());
  widening.outputs_.assign(operands.outputs.begin(), operands.outputs.end());
  for (std::size_t i = 0; i < widening.inputs_.size(); ++i) {
    View& view = widening.inputs_[i];
    if (!is_narrow(view) || in_mask(native.inputs, i)) continue;
    Copy copy{.narrow = view, .index = i};
    view = View(nullptr, {DType::kF32, view.shape});
    copy.offset = widening.add_scratch(view.bytes());
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
    copy.offset =
        lender != widening.widened_.end() ? lender->offset : widening.add_scratch(view.bytes());
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

std::int64_t CpuWidening::workspace_bytes(std::int64_t kernel_bytes) const {
  return round_up(kernel_bytes, kAlignment) + scratch_bytes_;
}

void CpuWidening::place(std::int64_t kernel_bytes, std::span<std::byte> workspace) {
  kernel_workspace_ = workspace.first(static_cast<std::size_t>(kernel_bytes));
  // SAFETY: the workspace holds workspace_bytes(kernel_bytes) and is aligned to 64 bytes: the
  // kernel's own, rounded up to 64, then every copy at its offset, a multiple of 64, too.
  std::byte* const scratch = workspace.data() + round_up(kernel_bytes, kAlignment);
  for (const Copy& copy : widened_) inputs_[copy.index].data = scratch + copy.offset;
  for (const Copy& copy : rounded_) outputs_[copy.index].data = scratch + copy.offset;
}

void CpuWidening::widen(const cpu::Context& context) const noexcept {
  for (const Copy& copy : widened_) convert(copy.narrow, inputs_[copy.index], context);
}

void CpuWidening::round(const cpu::Context& context) const noexcept {
  for (const Copy& copy : rounded_) convert(outputs_[copy.index], copy.narrow, context);
}

}  // namespace volta
