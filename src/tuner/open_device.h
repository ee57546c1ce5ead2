// Opens the device that a program needs, with the parameters that `volta tune` found for it.
// Devices themselves read no files; they are given a table of parameters.
#pragma once

#include <memory>

#include "base/result.h"
#include "device/device_handle.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul_parameters.h"

namespace [[gnu::visibility("default")]] volta {

/// The parameters that `volta tune` stored for this CPU and these kernels. Null if there are none,
/// or if VOLTA_TUNING is "off". A file that cannot be used counts as none; it is not changed, and
/// the log gets a warning. kInvalidArgument if VOLTA_TUNING is neither "on", "off" nor empty. Takes
/// less than a millisecond.
Result<std::shared_ptr<const cpu::MatMulTuning>> load_tuning(cpu::Simd simd);

/// DeviceHandle::create() with tuned products on a CPU (load_tuning()), unless `options` already
/// has a table. Results are the same, bit for bit.
Result<DeviceHandle> open_device(DeviceOptions options);
/// The same for the device that VOLTA_DEVICE selects (see DeviceChoice::detect).
Result<DeviceHandle> open_device();

}  // namespace volta
