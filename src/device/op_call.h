// OpCall: one op with the addresses of everything it touches; and who wants to hear of each.
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

/// One op with the addresses of everything it touches, all in the device's memory.
struct OpCall {
  const Op* op = nullptr;
  std::span<const View> inputs = {};
  std::span<const View> outputs = {};
  std::span<std::byte> workspace = {};
  std::string_view label = {};
  /// Whether the work may be given up before this call: of a plan's run, no step before it has
  /// changed a parameter. Calls that prepare whole weights (Cast, Encode) may be given up in
  /// between, too, and leave their outputs unfinished.
  bool may_stop = false;
  /// Of a plan's steps: see PlanStep. A device that runs one step after the other needs neither.
  std::int32_t stream = 0;
  std::span<const std::size_t> waits = {};
};

/// "MatMul{transpose_b} 'h.0.attn'": how errors name a call.
std::string describe(const OpCall& call);

/// Hears of every step of an executable's runs (Executable::add_listener). While anybody listens,
/// each step is waited for, so that its tensors can be read when it has ended. One run of one
/// executable at a time calls it; a listener that several executables share must be safe to call
/// from the threads that run them.
class StepListener {
 public:
  virtual ~StepListener() = default;
  /// Before the first step of a run.
  virtual void run_begins() {}
  /// Before step `step`. An error ends the run; the executable adds which step it was.
  virtual Status step_begins(std::size_t /*step*/, const OpCall& /*call*/) { return {}; }
  /// When the results of step `step` are there. An error ends the run, as above.
  virtual Status step_ends(std::size_t /*step*/, const OpCall& /*call*/) { return {}; }
  /// After the last step that ended; `steps` of them did, and `complete` when that is all of them.
  virtual void run_ends(std::size_t /*steps*/, bool /*complete*/) {}
};

}  // namespace volta
