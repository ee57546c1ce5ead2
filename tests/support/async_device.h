// A device that plays a GPU: a thread of its own does the work, so that run() returns before
// anything is done and errors come late; and its memory cannot be touched by the host, whose reads
// and writes of it fault. It has several streams, and runs the steps of a plan in a random order of
// those that the plan allows. Kernels are those of the device that it wraps.
//
// Every block of memory is two ranges of addresses side by side. The first one, which is all that
// the rest of the program sees, has no access rights. The second one holds the bytes, and only the
// thread of the device and the copies use it.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/device.h"
#include "device/device_proxy.h"

namespace volta::test {

/// Jobs done in order by a thread of its own. After one that fails the others are dropped, until
/// the error has been taken.
class JobQueue {
 public:
  JobQueue() : worker_([this] { work(); }) {}
  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;
  ~JobQueue() {
    {
      const std::lock_guard lock(mutex_);
      held_ = false;
      closing_ = true;
    }
    changed_.notify_all();
    worker_.join();
  }

  void submit(std::function<Status()> job) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    changed_.notify_all();
  }
  /// Waits for every job and takes the first error.
  Status wait() {
    ++waits;
    std::unique_lock lock(mutex_);
    wait_until_idle(lock);
    if (!error_) return {};
    return std::unexpected(*std::exchange(error_, std::nullopt));
  }
  /// Waits for every job; an error stays for wait().
  void drain() {
    std::unique_lock lock(mutex_);
    wait_until_idle(lock);
  }
  /// While it is held no job begins.
  void hold(bool held) {
    {
      const std::lock_guard lock(mutex_);
      held_ = held;
    }
    changed_.notify_all();
  }
  std::size_t pending() {
    const std::lock_guard lock(mutex_);
    return jobs_.size();
  }

  std::atomic<std::int64_t> waits = 0;  ///< How often somebody waited for the work.

 private:
  void wait_until_idle(std::unique_lock<std::mutex>& lock) {
    changed_.wait(lock, [this] { return jobs_.empty() && !busy_; });
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock,
                    [this] { return (!jobs_.empty() && !held_) || (closing_ && jobs_.empty()); });
      if (jobs_.empty()) return;
      const std::function<Status()> job = std::move(jobs_.front());
      jobs_.pop_front();
      if (!error_) {
        busy_ = true;
        lock.unlock();
        Status status = job();
        lock.lock();
        busy_ = false;
        if (!status) error_ = std::move(status).error();
      }
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<Status()>> jobs_;
  std::optional<Error> error_;
  bool busy_ = false;
  bool held_ = false;
  bool closing_ = false;
  std::thread worker_;
};

class AsyncMemory final : public MemoryOwner {
 public:
  explicit AsyncMemory(std::shared_ptr<JobQueue> queue) : queue_(std::move(queue)) {}

  Result<void*> allocate(std::int64_t bytes) override {
    ++allocations;
    const std::size_t length = whole_pages(bytes);
    void* const block =
        mmap(nullptr, 2 * length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED) return fail(ErrorCode::kOutOfMemory, "no addresses left");
    if (mprotect(static_cast<std::byte*>(block) + length, length, PROT_READ | PROT_WRITE) != 0) {
      munmap(block, 2 * length);
      return fail(ErrorCode::kOutOfMemory, "no memory left");
    }
    const std::lock_guard lock(mutex_);
    blocks_[reinterpret_cast<std::uintptr_t>(block)] = length;
    return block;
  }
  void deallocate(void* data, std::int64_t bytes) override {
    queue_->drain();
    {
      const std::lock_guard lock(mutex_);
      blocks_.erase(reinterpret_cast<std::uintptr_t>(data));
    }
    munmap(data, 2 * whole_pages(bytes));
  }
  bool host_accessible() const override { return false; }
  Status copy_from_host(void* destination, std::span<const std::byte> source) override {
    ++copies_from_host;
    queue_->submit([to = real(destination), bytes = std::vector(source.begin(), source.end())] {
      std::memcpy(to, bytes.data(), bytes.size());
      return Status();
    });
    return {};
  }
  Status copy_to_host(std::span<std::byte> destination, const void* source) override {
    ++copies_to_host;
    VOLTA_TRY(queue_->wait());
    std::memcpy(destination.data(), real(source), destination.size());
    return {};
  }
  Status submit_copy_to_host(std::span<std::byte> destination, const void* source) override {
    ++copies_to_host;
    queue_->submit([destination, from = real(source)] {
      std::memcpy(destination.data(), from, destination.size());
      return Status();
    });
    return {};
  }
  Status copy_within(void* destination, const void* source, std::int64_t bytes) override {
    queue_->submit([to = real(destination), from = real(source), bytes] {
      std::memcpy(to, from, static_cast<std::size_t>(bytes));
      return Status();
    });
    return {};
  }
  Status fill(void* destination, std::byte value, std::int64_t bytes) override {
    queue_->submit([to = real(destination), value, bytes] {
      std::memset(to, std::to_integer<int>(value), static_cast<std::size_t>(bytes));
      return Status();
    });
    return {};
  }

  /// Where the bytes of an address that was handed out lie; null for any other address.
  void* real(const void* data) {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    const std::lock_guard lock(mutex_);
    auto block = blocks_.upper_bound(address);
    if (block == blocks_.begin()) return nullptr;
    --block;
    if (address - block->first >= block->second) return nullptr;
    return reinterpret_cast<void*>(address + block->second);
  }

  std::atomic<std::int64_t> allocations = 0;
  std::atomic<std::int64_t> copies_from_host = 0;
  std::atomic<std::int64_t> copies_to_host = 0;

 private:
  static std::size_t whole_pages(std::int64_t bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return (static_cast<std::size_t>(bytes) + page - 1) / page * page;
  }

  std::shared_ptr<JobQueue> queue_;
  std::mutex mutex_;
  std::map<std::uintptr_t, std::size_t> blocks_;  ///< Bytes of one of its ranges, by address.
};

class AsyncDevice final : public DeviceProxy {
 public:
  /// `inner` works in the host's memory.
  explicit AsyncDevice(std::shared_ptr<Device> inner, std::int32_t streams = 3)
      : DeviceProxy(std::move(inner)),
        streams_(streams),
        queue_(std::make_shared<JobQueue>()),
        async_memory_(std::make_shared<AsyncMemory>(queue_)),
        memory_(async_memory_) {}

  JobQueue& queue() { return *queue_; }
  AsyncMemory& async_memory() { return *async_memory_; }

  const std::shared_ptr<MemoryOwner>& memory() const override { return memory_; }
  Status run(const OpCall& call) override {
    queue_->submit([device = inner(), mine = std::make_shared<const Call>(call, *async_memory_)] {
      return device->run(mine->call);
    });
    return {};
  }
  Status synchronize() override { return queue_->wait(); }
  std::int32_t streams() const override { return streams_; }
  /// How many steps have run before one that stands before them in their plan.
  std::int64_t overtakes() const { return *overtakes_; }

 protected:
  // In this device's memory and by its run(), not those of the inner one.
  Result<Executable> load_plan(std::shared_ptr<const Plan> plan, const TensorLookup& lookup,
                               std::shared_ptr<DeviceBuffer> arena) override {
    return Device::load_plan(std::move(plan), lookup, std::move(arena));
  }
  Result<std::unique_ptr<Program>> compile(std::span<const OpCall> calls) override {
    return std::make_unique<AsyncProgram>(inner(), queue_, *async_memory_, calls, overtakes_);
  }

 private:
  /// A call with the addresses that the device's thread uses.
  struct Call {
    Call(const OpCall& from, AsyncMemory& memory)
        : op(*from.op), label(from.label), waits(from.waits.begin(), from.waits.end()), call(from) {
      for (const View& view : from.inputs) views.push_back(translated(view, memory));
      for (const View& view : from.outputs) views.push_back(translated(view, memory));
      call.op = &op;
      call.label = label;
      call.waits = waits;
      call.inputs = std::span<const View>(views).first(from.inputs.size());
      call.outputs = std::span<const View>(views).subspan(from.inputs.size());
      if (from.workspace.empty()) return;
      call.workspace = {static_cast<std::byte*>(memory.real(from.workspace.data())),
                        from.workspace.size()};
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    static View translated(View view, AsyncMemory& memory) {
      if (view.data != nullptr) view.data = memory.real(view.data);
      return view;
    }

    Op op;
    std::string label;
    std::vector<View> views;
    std::vector<std::size_t> waits;
    OpCall call;
  };

  class AsyncProgram final : public Program {
   public:
    AsyncProgram(std::shared_ptr<Device> device, std::shared_ptr<JobQueue> queue,
                 AsyncMemory& memory, std::span<const OpCall> calls,
                 std::shared_ptr<std::atomic<std::int64_t>> overtakes)
        : Program(calls.size()),
          device_(std::move(device)),
          queue_(std::move(queue)),
          overtakes_(std::move(overtakes)) {
      for (const OpCall& call : calls) {
        const auto stream = static_cast<std::size_t>(call.stream);
        streams_.resize(std::max(streams_.size(), stream + 1));
        streams_[stream].push_back(calls_.size());
        calls_.push_back(std::make_unique<const Call>(call, memory));
      }
    }
    ~AsyncProgram() override { queue_->drain(); }

    Status submit() override {
      queue_->submit([this] { return run_in_some_order(); });
      return {};
    }
    Status submit_step(std::size_t step) override {
      queue_->submit([this, step] { return device_->run(calls_[step]->call); });
      return {};
    }

   private:
    // The next step of any stream that waits for nothing any more, drawn at random each time.
    Status run_in_some_order() {
      std::vector<std::size_t> next(streams_.size(), 0);
      std::vector<bool> ended(calls_.size(), false);
      std::size_t first_left = 0;
      for (std::size_t left = calls_.size(); left > 0; --left) {
        std::vector<std::size_t> ready;
        for (std::size_t stream = 0; stream < streams_.size(); ++stream) {
          if (next[stream] == streams_[stream].size()) continue;
          const auto waits = calls_[streams_[stream][next[stream]]]->call.waits;
          const bool free = std::ranges::all_of(waits, [&](std::size_t i) { return ended[i]; });
          if (free) ready.push_back(stream);
        }
        if (ready.empty()) return fail(ErrorCode::kInternal, "the streams wait for each other");
        const std::size_t stream = ready[random_() % ready.size()];
        const std::size_t step = streams_[stream][next[stream]++];
        Status status = device_->run(calls_[step]->call);
        if (!status) {
          return std::unexpected(std::move(status).error().with_context(
              "step " + std::to_string(step + 1) + " of " + std::to_string(calls_.size())));
        }
        ended[step] = true;
        while (first_left < ended.size() && ended[first_left]) ++first_left;
        if (first_left < step) ++*overtakes_;
      }
      return {};
    }

    std::shared_ptr<Device> device_;
    std::shared_ptr<JobQueue> queue_;
    std::vector<std::unique_ptr<const Call>> calls_;
    std::vector<std::vector<std::size_t>> streams_;  ///< The steps of each, in order.
    std::mt19937 random_;
    std::shared_ptr<std::atomic<std::int64_t>> overtakes_;
  };

  std::int32_t streams_;
  std::shared_ptr<std::atomic<std::int64_t>> overtakes_ =
      std::make_shared<std::atomic<std::int64_t>>(0);
  std::shared_ptr<JobQueue> queue_;
  std::shared_ptr<AsyncMemory> async_memory_;
  std::shared_ptr<MemoryOwner> memory_;  ///< The same, as the interface gives it out.
};

}  // namespace volta::test
