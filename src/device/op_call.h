// OpCall: one op with the addresses of all its operands. StepListener: callbacks for the steps of a
// run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "ops/op.h"
#include "tensor/view.h"

namespace [[gnu::visibility("default")]] volta {

/// One op with the addresses of all its operands, in the device's memory.
struct OpCall {
  const Op* op = nullptr;
  std::span<const View> inputs = {};
  std::span<const View> outputs = {};
  std::span<std::byte> workspace = {};
  std::string_view label = {};
  /// Whether the work may be given up before this call. In a plan's run, this is true only before
  /// the first step that changes a parameter. Calls that prepare whole weights (Cast, Encode) may
  /// also be given up while they run, and then leave their outputs unfinished.
  bool may_stop = false;
  /// For a plan's steps: see PlanStep. A device that runs one step after the other needs neither.
  std::int32_t stream = 0;
  std::span<const std::size_t> waits = {};
};

/// How errors name a call: "MatMul{transpose_b} 'h.0.attn'".
std::string describe(const OpCall& call);

/// Gets a callback for every step of an executable's runs (Executable::add_listener). While an
/// executable has listeners, it waits for each step, so that the step's tensors can be read when it
/// has ended. An executable calls it from one run at a time. A listener that several executables
/// share must be safe to call from all threads that run them.
class StepListener {
 public:
  virtual ~StepListener() = default;
  /// Called before the first step of a run.
  virtual void run_begins() {}
  /// Called before step `step`. An error ends the run; the executable adds the step's number to it.
  virtual Status step_begins(std::size_t /*step*/, const OpCall& /*call*/) { return {}; }
  /// Called when the results of step `step` are available. An error ends the run, as above.
  virtual Status step_ends(std::size_t /*step*/, const OpCall& /*call*/) { return {}; }
  /// Called at the end of a run. `steps` is the number of steps that ended without an error, and
  /// `complete` tells whether these are all steps.
  virtual void run_ends(std::size_t /*steps*/, bool /*complete*/) {}
};

}  // namespace volta
