// ProfilingDevice measures every op of the plans that are loaded through it. It changes no result.
// While a plan runs, it only reads the clock once per step and stores the number. It prepares
// strings and memory when the plan is loaded, and adds up times after the last step.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "device/device.h"
#include "device/device_proxy.h"
#include "device/op_call.h"
#include "device/profile.h"

namespace [[gnu::visibility("default")]] volta {

struct ProfilingOptions {
  /// Number of calls to keep for the timeline, 24 bytes each. The latest ones are kept; 0 keeps
  /// none.
  std::int64_t max_events = std::int64_t{1} << 16;
};

/// A device that wraps another one and listens to the plans that it loads. It waits for each op, so
/// that the time of an op includes no other op. Safe to use from several threads at once. Runs of a
/// loaded plan allocate nothing for it, except the first run on a new thread. Direct run() calls
/// are measured too, at the cost of a lookup by text.
class ProfilingDevice final : public DeviceProxy {
 public:
  /// kInvalidArgument for a null device or a negative number of events, kOutOfMemory.
  static Result<std::shared_ptr<ProfilingDevice>> create(std::shared_ptr<Device> device,
                                                         const ProfilingOptions& options = {});
  ~ProfilingDevice() override;

  /// Returns what was measured since the start or the last reset().
  Profile profile() const;
  /// Discards all numbers and events, and those of runs that have not ended yet.
  void reset();

  Status run(const OpCall& call) override;

 protected:
  Result<Executable> load_plan(std::shared_ptr<const Plan> plan, const TensorLookup& lookup,
                               std::shared_ptr<DeviceBuffer> arena) override;

 private:
  class Recorder;
  class PlanTimer;
  ProfilingDevice(std::shared_ptr<Device> device, std::shared_ptr<Recorder> recorder);

  std::shared_ptr<Recorder> recorder_;  ///< Shared with the timers of loaded plans.
};

}  // namespace volta
