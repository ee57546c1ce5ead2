// FiniteCheck and CheckingDevice: find the first op whose result is not finite.
#include "device/checking_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/memory.h"
#include "ops/rules.h"

namespace volta {

namespace {

// A float is NaN or infinite when its exponent bits are all ones.
template <typename Bits>
std::optional<std::int64_t> find_exponent(const Bits* bits, std::int64_t count, Bits exponent) {
  for (std::int64_t i = 0; i < count; ++i) {
    if ((bits[i] & exponent) == exponent) return i;
  }
  return std::nullopt;
}

// SAFETY: `data` holds the elements of the view, which is of a float type, aligned; the bits read
// have an element's size, and devices and kernels write them as plain memory.
std::optional<std::int64_t> first_non_finite(const void* data, const View& view) {
  const std::int64_t count = view.shape.elements();
  if (view.dtype == DType::kF32) {
    return find_exponent(static_cast<const std::uint32_t*>(data), count, 0x7F800000u);
  }
  const std::uint16_t exponent = view.dtype == DType::kBF16 ? 0x7F80 : 0x7C00;
  return find_exponent(static_cast<const std::uint16_t*>(data), count, exponent);
}

Result<std::optional<std::int64_t>> first_non_finite(MemoryOwner& memory, const View& view) {
  const std::int64_t bytes = view.shape.elements() * dtype_size(view.dtype);
  // Encoded weights were made from checked ones and are never written.
  if (!is_float(view.dtype) || !view.encoding.plain() || bytes == 0) return std::nullopt;
  if (memory.host_accessible()) return first_non_finite(view.data, view);
  VOLTA_TRY(AlignedBytes copy, try_allocate(bytes));
  VOLTA_TRY(memory.copy_to_host(copy.span(), view.data));
  return first_non_finite(copy.data(), view);
}

// For element 7 of a [2, 4] tensor: "[1, 3]".
std::string position(const Shape& shape, std::int64_t element) {
  Shape where = shape;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    where.set(axis, element % shape[axis]);
    element /= shape[axis];
  }
  return to_string(where);
}

// What the error adds about the inputs: one that was bad before the op ran, or that all were
// finite. It skips inputs whose memory the op overwrote (in place, or because the plan gave the
// result their memory), because their old values are gone.
Result<std::string> blame_input(MemoryOwner& memory, const OpCall& call, std::uint32_t written) {
  bool all_seen = true;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const View& input = call.inputs[i];
    const bool overwritten =
        std::ranges::find(call.outputs, input.data, &View::data) != call.outputs.end();
    if (overwritten || writes_input(written, i)) {
      all_seen = false;
      continue;
    }
    VOLTA_TRY(const auto bad, first_non_finite(memory, input));
    if (bad) return fmt::format("; its input {} already was, at element {}", i, *bad);
  }
  return std::string(all_seen ? "; its inputs are finite" : "");
}

}  // namespace

Status FiniteCheck::step_ends(std::size_t /*step*/, const OpCall& call) {
  MemoryOwner& memory = *memory_;
  const std::uint32_t written = writes(*call.op, call.inputs.size());
  const auto check = [&](const View& view, std::string_view role, std::size_t i) -> Status {
    VOLTA_TRY(const auto bad, first_non_finite(memory, view));
    if (!bad) return {};
    VOLTA_TRY(const std::string blame, blame_input(memory, call, written));
    return fail(ErrorCode::kNonFinite,
                fmt::format("{}: {} {} {} is not finite at element {} ({}){}", describe(call), role,
                            i, to_string(view.spec()), *bad, position(view.shape, *bad), blame));
  };
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    VOLTA_TRY(check(call.outputs[i], "output", i));
  }
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    if (writes_input(written, i)) VOLTA_TRY(check(call.inputs[i], "written input", i));
  }
  return {};
}

Result<std::shared_ptr<CheckingDevice>> CheckingDevice::create(std::shared_ptr<Device> device) {
  if (device == nullptr) {
    return fail(ErrorCode::kInvalidArgument, "a checking device needs a device to wrap, not null");
  }
  return std::shared_ptr<CheckingDevice>(new CheckingDevice(std::move(device)));
}

CheckingDevice::CheckingDevice(std::shared_ptr<Device> device)
    : DeviceProxy(std::move(device)), check_(std::make_shared<FiniteCheck>(memory())) {}

Result<Executable> CheckingDevice::load_plan(std::shared_ptr<const Plan> plan,
                                             const TensorLookup& lookup,
                                             std::shared_ptr<DeviceBuffer> arena) {
  VOLTA_TRY(Executable executable,
            DeviceProxy::load_plan(std::move(plan), lookup, std::move(arena)));
  executable.add_listener(check_);
  return executable;
}

Status CheckingDevice::run(const OpCall& call) {
  VOLTA_TRY(inner()->run(call));
  VOLTA_TRY(inner()->synchronize());
  return check_->step_ends(0, call);
}

}  // namespace volta
