// Reads the table of tuned parameters before it makes a CPU device.
#include "tuner/open_device.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "base/environment.h"
#include "device/cpu_device.h"
#include "device/device_kind.h"
#include "tuner/tuning_cache.h"

namespace volta {

Result<std::shared_ptr<const cpu::MatMulTuning>> load_tuning(cpu::Simd simd) {
  const std::string_view wanted = environment("VOLTA_TUNING");
  if (wanted == "off") return nullptr;
  if (!wanted.empty() && wanted != "on") {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("VOLTA_TUNING: '{}' is neither on nor off", wanted));
  }
  const auto cache = tuner::TuningCache::open();
  if (!cache) return nullptr;
  auto tuning = std::make_shared<cpu::MatMulTuning>(tuner::to_tuning(cache->read_or_warn(), simd));
  if (tuning->size() == 0) return nullptr;
  return tuning;
}

Result<DeviceHandle> open_device(DeviceOptions options) {
  if (options.kind == DeviceKind::kCpu && options.tuning == nullptr) {
    VOLTA_TRY(options.simd, choose_simd(options.simd));
    VOLTA_TRY(options.tuning, load_tuning(*options.simd));
  }
  return DeviceHandle::create(options);
}

Result<DeviceHandle> open_device() {
  VOLTA_TRY(const DeviceChoice choice, DeviceChoice::detect());
  return open_device(DeviceOptions{.kind = choice.kind, .index = choice.index});
}

}  // namespace volta
