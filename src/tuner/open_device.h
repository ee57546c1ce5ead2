// Makes the device that a program asks for, with what `volta tune` found for it. Devices themselves
// read no files: they are given a table of choices.
#pragma once

#include <memory>

#include "base/result.h"
#include "device/device_handle.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul_parameters.h"

namespace [[gnu::visibility("default")]] volta {

/// What `volta tune` keeps for this CPU and these kernels; null where there is nothing, or where
/// VOLTA_TUNING is "off". A file that cannot be used counts as none, with a warning in the log, and
/// stays as it is. kInvalidArgument when VOLTA_TUNING is neither "on", "off" nor empty. Takes less
/// than a millisecond.
Result<std::shared_ptr<const cpu::MatMulTuning>> load_tuning(cpu::Simd simd);

/// DeviceHandle::create() with the products of a CPU tuned (load_tuning()), unless `options` has a
/// table already. Results are the same, bit for bit.
Result<DeviceHandle> open_device(DeviceOptions options);
/// The same for the device that VOLTA_DEVICE asks for (see DeviceChoice::detect).
Result<DeviceHandle> open_device();

}  // namespace volta
