// Devices for tests of failure: a memory owner and a device that wrap the real ones, count what
// passes, and fail the nth allocation, copy or run. The memory can play a GPU's, which the host may
// not touch (it is the host's all the same, so that CPU kernels work on it).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "device/device_proxy.h"

namespace volta::test {

/// Lets a number of calls pass and fails the next one, once.
class Fuse {
 public:
  /// The nth call from now fails (1: the next one); 0 disarms.
  void arm(std::int64_t nth) { left_ = nth; }
  bool blows() { return left_ > 0 && left_.fetch_sub(1) == 1; }

 private:
  std::atomic<std::int64_t> left_ = 0;
};

class FaultyMemory final : public MemoryOwner {
 public:
  explicit FaultyMemory(bool host_accessible = true) : host_accessible_(host_accessible) {}

  Result<void*> allocate(std::int64_t bytes) override {
    ++allocations_;
    if (allocation_fuse.blows()) return fail(ErrorCode::kOutOfMemory, "injected: no memory");
    auto block = host_memory()->allocate(bytes);
    if (block) live_bytes_ += bytes;
    return block;
  }
  void deallocate(void* data, std::int64_t bytes) override {
    live_bytes_ -= bytes;
    host_memory()->deallocate(data, bytes);
  }
  bool host_accessible() const override { return host_accessible_; }
  Status copy_from_host(void* destination, std::span<const std::byte> source) override {
    ++copies_from_host_;
    if (copy_fuse.blows()) return fail(ErrorCode::kDevice, "injected: copy failed");
    return host_memory()->copy_from_host(destination, source);
  }
  Status copy_to_host(std::span<std::byte> destination, const void* source) override {
    ++copies_to_host_;
    if (copy_fuse.blows()) return fail(ErrorCode::kDevice, "injected: copy failed");
    return host_memory()->copy_to_host(destination, source);
  }
  Status copy_within(void* destination, const void* source, std::int64_t bytes) override {
    if (copy_fuse.blows()) return fail(ErrorCode::kDevice, "injected: copy failed");
    return host_memory()->copy_within(destination, source, bytes);
  }
  Status fill(void* destination, std::byte value, std::int64_t bytes) override {
    if (copy_fuse.blows()) return fail(ErrorCode::kDevice, "injected: fill failed");
    return host_memory()->fill(destination, value, bytes);
  }

  std::int64_t allocations() const { return allocations_; }
  std::int64_t live_bytes() const { return live_bytes_; }
  std::int64_t copies_from_host() const { return copies_from_host_; }
  std::int64_t copies_to_host() const { return copies_to_host_; }

  Fuse allocation_fuse;
  Fuse copy_fuse;

 private:
  bool host_accessible_;
  std::atomic<std::int64_t> allocations_ = 0;
  std::atomic<std::int64_t> live_bytes_ = 0;
  std::atomic<std::int64_t> copies_from_host_ = 0;
  std::atomic<std::int64_t> copies_to_host_ = 0;
};

class FaultyDevice final : public DeviceProxy {
 public:
  explicit FaultyDevice(std::shared_ptr<Device> inner, bool host_accessible = true)
      : DeviceProxy(std::move(inner)),
        faulty_memory_(std::make_shared<FaultyMemory>(host_accessible)),
        memory_(faulty_memory_) {}

  FaultyMemory& faulty_memory() { return *faulty_memory_; }
  std::int64_t runs() const { return runs_; }
  Fuse run_fuse;
  Fuse synchronize_fuse;
  bool supports_all = true;  ///< False: supports() refuses every op.

  const std::shared_ptr<MemoryOwner>& memory() const override { return memory_; }
  Result<std::vector<Tensor>> evaluate(const Op& op, std::span<const Tensor> inputs) override {
    return Device::evaluate(op, inputs);
  }
  Status run(const OpCall& call) override {
    ++runs_;
    if (run_fuse.blows()) {
      return fail(ErrorCode::kDevice, describe(call) + ": injected: the device failed");
    }
    return DeviceProxy::run(call);
  }
  Status synchronize() override {
    if (synchronize_fuse.blows()) return fail(ErrorCode::kDevice, "injected: late failure");
    return DeviceProxy::synchronize();
  }
  bool supports(const Op& op, std::span<const TensorSpec> inputs) const override {
    return supports_all && DeviceProxy::supports(op, inputs);
  }
  Encoding preferred_encoding(const Op&, std::size_t, const TensorSpec&) const override {
    return {};
  }

 protected:
  // In this device's memory and by its run(), not those of the inner one.
  Result<Executable> load_plan(std::shared_ptr<const Plan> plan, const TensorLookup& lookup,
                               std::shared_ptr<DeviceBuffer> arena) override {
    return Device::load_plan(std::move(plan), lookup, std::move(arena));
  }

 private:
  std::shared_ptr<FaultyMemory> faulty_memory_;
  std::shared_ptr<MemoryOwner> memory_;  ///< The same, as the interface gives it out.
  std::atomic<std::int64_t> runs_ = 0;
};

}  // namespace volta::test
