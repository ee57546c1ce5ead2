// ProfilingDevice: its recorder, and how a plan's steps are timed.
#include "device/profiling_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "device/ticks.h"
#include "ops/rules.h"

namespace volta {

// The sums over the calls of one source. They are apart from the texts, so that a plan's hot
// numbers are close together.
struct ProfileSums {
  std::int64_t calls = 0;
  std::int64_t total_ns = 0;
  std::int64_t min_ns = std::numeric_limits<std::int64_t>::max();
  std::int64_t max_ns = 0;

  void add(std::int64_t ns) {
    ++calls;
    total_ns += ns;
    min_ns = std::min(min_ns, ns);
    max_ns = std::max(max_ns, ns);
  }
};

namespace {

std::vector<TensorSpec> specs_of(std::span<const View> views) {
  std::vector<TensorSpec> specs;
  for (const View& view : views) specs.push_back(view.spec());
  return specs;
}

// "f32[1, 128], f32[128, 384]"
std::string shapes_text(std::span<const TensorSpec> specs) {
  std::string text;
  for (const TensorSpec& spec : specs) text += (text.empty() ? "" : ", ") + to_string(spec);
  return text;
}

ProfileSource describe_source(const OpCall& call) {
  const std::vector<TensorSpec> inputs = specs_of(call.inputs);
  const OpCost once = cost(*call.op, inputs, specs_of(call.outputs));
  return {.op = to_string(*call.op),
          .op_name = std::string(op_name(*call.op)),
          .shapes = shapes_text(inputs),
          .label = std::string(call.label),
          .bytes = once.bytes,
          .flops = once.flops};
}

// Adds a source's sums to the row of its group.
void add_to_row(ProfileRow& row, const ProfileSource& source, const ProfileSums& sums) {
  row.min_ns = row.calls == 0 ? sums.min_ns : std::min(row.min_ns, sums.min_ns);
  row.max_ns = std::max(row.max_ns, sums.max_ns);
  row.calls += sums.calls;
  row.total_ns += sums.total_ns;
  row.bytes += sums.calls * source.bytes;
  row.flops += sums.calls * source.flops;
}

// The rows of a map, most time first; rows with equal times are in the order of their texts.
template <typename Key>
std::vector<ProfileRow> sorted_rows(std::map<Key, ProfileRow>&& groups) {
  std::vector<ProfileRow> rows;
  for (auto& [key, row] : groups) rows.push_back(std::move(row));
  std::ranges::sort(rows, [](const ProfileRow& a, const ProfileRow& b) {
    return std::tie(b.total_ns, a.op, a.shapes, a.label) <
           std::tie(a.total_ns, b.op, b.shapes, b.label);
  });
  return rows;
}

}  // namespace

/// Everything that was measured. It is locked when a plan is loaded and after each run, but never
/// during a run.
class ProfilingDevice::Recorder {
 public:
  static Result<std::shared_ptr<Recorder>> create(std::int64_t max_events) {
    VOLTA_TRY(auto ring, try_make_array<ProfileEvent>(max_events));
    return std::shared_ptr<Recorder>(new Recorder(std::move(ring)));
  }

  /// The source of each call. Calls with the same op, shapes and label have the same source.
  std::vector<std::int32_t> find_sources(std::span<const OpCall> calls) {
    const std::lock_guard lock(mutex_);
    std::vector<std::int32_t> sources;
    sources.reserve(calls.size());
    for (const OpCall& call : calls) sources.push_back(find_source(call));
    return sources;
  }

  /// Converts the ticks of a run that lasted from `start_ns` to `end_ns` into nanoseconds of the
  /// real clock. If the counter goes back (two processors out of step), the time stays the same
  /// instead.
  static void to_nanoseconds(std::span<std::int64_t> times, std::int64_t start_ns,
                             std::int64_t end_ns) {
    const std::int64_t first = times.front();
    const std::int64_t length = std::max<std::int64_t>(times.back() - first, 1);
    const double scale = static_cast<double>(end_ns - start_ns) / static_cast<double>(length);
    std::int64_t latest = 0;
    for (std::int64_t& time : times) {
      latest = std::clamp(time - first, latest, length);
      time = start_ns + static_cast<std::int64_t>(static_cast<double>(latest) * scale);
    }
  }

  /// Records the first steps of a run, one source per step. `complete` tells whether those are all
  /// steps. Step i took from times[i] to times[i + 1]. A run that began before the last reset() is
  /// discarded.
  void add_run(std::span<const std::int32_t> sources, std::span<const std::int64_t> times,
               bool complete) {
    const std::lock_guard lock(mutex_);
    if (times.front() < origin_ns_) return;
    const std::uint32_t thread = thread_number();
    for (std::size_t i = 0; i < sources.size(); ++i) {
      add(sources[i], thread, times[i], times[i + 1] - times[i]);
    }
    if (!complete) return;
    ++executions_;
    add_event({-1, thread, times.front() - origin_ns_, times[sources.size()] - times.front()});
  }

  void add_single(const OpCall& call, std::int64_t start_ns, std::int64_t duration_ns) {
    const std::lock_guard lock(mutex_);
    if (start_ns < origin_ns_) return;  // It began before the last reset().
    add(find_source(call), thread_number(), start_ns, duration_ns);
  }

  Profile profile() const;

  void reset() {
    const std::lock_guard lock(mutex_);
    std::ranges::fill(sums_, ProfileSums{});
    executions_ = 0;
    event_count_ = 0;
    origin_ns_ = monotonic_nanoseconds();
  }

 private:
  explicit Recorder(HeapArray<ProfileEvent> ring)
      : ring_(std::move(ring)), origin_ns_(monotonic_nanoseconds()) {}

  void add(std::int32_t source, std::uint32_t thread, std::int64_t start_ns, std::int64_t ns) {
    sums_[static_cast<std::size_t>(source)].add(ns);
    add_event({source, thread, start_ns - origin_ns_, ns});
  }

  void add_event(const ProfileEvent& event) {
    if (!ring_.empty()) ring_[next_event_] = event;
    if (++next_event_ >= ring_.size()) next_event_ = 0;
    ++event_count_;
  }

  std::int32_t find_source(const OpCall& call) {
    ProfileSource source = describe_source(call);
    std::string key = fmt::format("{}\n{}\n{}", source.op, source.shapes, source.label);
    const auto next = static_cast<std::int32_t>(sources_.size());
    const auto [entry, is_new] = source_index_.try_emplace(std::move(key), next);
    if (is_new) {
      sources_.push_back(std::move(source));
      sums_.emplace_back();
    }
    return entry->second;
  }

  std::uint32_t thread_number() {
    const auto self = std::this_thread::get_id();
    const auto found = std::ranges::find(threads_, self);
    const auto number = static_cast<std::uint32_t>(found - threads_.begin());
    if (found == threads_.end()) threads_.push_back(self);
    return number;
  }

  mutable std::mutex mutex_;
  std::vector<ProfileSource> sources_;
  std::vector<ProfileSums> sums_;  ///< One per source.
  std::unordered_map<std::string, std::int32_t> source_index_;
  std::vector<std::thread::id> threads_;
  HeapArray<ProfileEvent> ring_;
  std::int64_t next_event_ = 0;
  std::int64_t event_count_ = 0;
  std::int64_t executions_ = 0;
  std::int64_t origin_ns_;
};

/// Listens to one executable, which runs once at a time.
class ProfilingDevice::PlanTimer final : public StepListener {
 public:
  PlanTimer(std::shared_ptr<Recorder> recorder, std::span<const OpCall> calls)
      : recorder_(std::move(recorder)),
        sources_(recorder_->find_sources(calls)),
        times_(calls.size() + 1) {}

  void run_begins() override {
    start_ns_ = monotonic_nanoseconds();
    times_.front() = ticks();
  }
  Status step_ends(std::size_t step, const OpCall& /*call*/) override {
    times_[step + 1] = ticks();  // The end of one step is the start of the next.
    return {};
  }
  void run_ends(std::size_t steps, bool complete) override {
    const std::span<std::int64_t> times = std::span(times_).first(steps + 1);
    Recorder::to_nanoseconds(times, start_ns_, monotonic_nanoseconds());
    recorder_->add_run(std::span(sources_).first(steps), times, complete);
  }

 private:
  std::shared_ptr<Recorder> recorder_;
  std::vector<std::int32_t> sources_;  ///< By step.
  /// When the run began and when each step ended: in ticks until the run has ended, then in
  /// nanoseconds.
  std::vector<std::int64_t> times_;
  std::int64_t start_ns_ = 0;
};

Profile ProfilingDevice::Recorder::profile() const {
  const std::lock_guard lock(mutex_);
  Profile profile;
  std::map<std::pair<std::string, std::string>, ProfileRow> ops;
  std::map<std::string, ProfileRow> labels;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const ProfileSource& source = sources_[i];
    if (sums_[i].calls == 0) continue;
    ProfileRow& op = ops[{source.op, source.shapes}];
    op.op = source.op;
    op.shapes = source.shapes;
    add_to_row(op, source, sums_[i]);
    ProfileRow& label = labels[source.label];
    label.label = source.label;
    add_to_row(label, source, sums_[i]);
    profile.total_ns += sums_[i].total_ns;
  }
  profile.ops = sorted_rows(std::move(ops));
  profile.labels = sorted_rows(std::move(labels));
  profile.executions = executions_;
  profile.sources = sources_;
  const std::int64_t stored = std::min(event_count_, ring_.size());
  for (std::int64_t i = 0; i < stored; ++i) {
    profile.events.push_back(ring_[(next_event_ - stored + i + ring_.size()) % ring_.size()]);
  }
  profile.dropped_events = event_count_ - stored;
  return profile;
}

Result<std::shared_ptr<ProfilingDevice>> ProfilingDevice::create(std::shared_ptr<Device> device,
                                                                 const ProfilingOptions& options) {
  if (device == nullptr) {
    return fail(ErrorCode::kInvalidArgument, "a profiling device needs a device to wrap, not null");
  }
  VOLTA_TRY(auto recorder, Recorder::create(options.max_events));
  return std::shared_ptr<ProfilingDevice>(
      new ProfilingDevice(std::move(device), std::move(recorder)));
}

ProfilingDevice::ProfilingDevice(std::shared_ptr<Device> device, std::shared_ptr<Recorder> recorder)
    : DeviceProxy(std::move(device)), recorder_(std::move(recorder)) {}

ProfilingDevice::~ProfilingDevice() = default;

Profile ProfilingDevice::profile() const {
  Profile profile = recorder_->profile();
  const DeviceInfo info = inner()->info();
  profile.device =
      fmt::format("{} ({}, {}, {})", info.id, info.name, info.isa, counted(info.threads, "thread"));
  return profile;
}

void ProfilingDevice::reset() { recorder_->reset(); }

Result<Executable> ProfilingDevice::load_plan(std::shared_ptr<const Plan> plan,
                                              const TensorLookup& lookup,
                                              std::shared_ptr<DeviceBuffer> arena) {
  VOLTA_TRY(Executable executable,
            DeviceProxy::load_plan(std::move(plan), lookup, std::move(arena)));
  executable.add_listener(std::make_shared<PlanTimer>(recorder_, executable.calls()));
  return executable;
}

Status ProfilingDevice::run(const OpCall& call) {
  const std::int64_t start = monotonic_nanoseconds();
  VOLTA_TRY(inner()->run(call));
  VOLTA_TRY(inner()->synchronize());
  recorder_->add_single(call, start, monotonic_nanoseconds() - start);
  return {};
}

}  // namespace volta
