// ProfilingDevice: measures every op of the plans that are loaded through it. It changes no result.
// While a plan runs it reads the clock once a step and stores the number; strings and memory are
// handled when the plan is loaded, sums after the last step.
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
  /// Calls kept for the time line, the latest ones; 0 keeps none. 24 bytes each.
  std::int64_t max_events = std::int64_t{1} << 16;
};

/// A device that wraps another and listens to the plans that it loads. Each op is waited for, so
/// that its time is its own. Safe to use from several threads at once. A loaded plan's runs
/// allocate nothing for it. Direct run() calls are measured too, at the cost of a look-up by text.
class ProfilingDevice final : public DeviceProxy {
 public:
  /// kInvalidArgument for a null device or a negative number of events, kOutOfMemory.
  static Result<std::shared_ptr<ProfilingDevice>> create(std::shared_ptr<Device> device,
                                                         const ProfilingOptions& options = {});
  ~ProfilingDevice() override;

  /// What was seen since the start or the last reset().
  Profile profile() const;
  /// Forgets all numbers and events, and those of what is running right now.
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
