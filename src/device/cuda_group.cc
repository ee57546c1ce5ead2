// Finds the groups of a plan and makes their tables.
#include "device/cuda_group.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/arithmetic.h"
#include "ops/rules.h"

namespace volta {

namespace {

// Every call of a group is compared with all others, so there is a limit.
constexpr std::size_t kMostCalls = 1024;

struct Range {
  std::uintptr_t begin = 0, end = 0;

  bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
};

// The memory that a call reads only, and that it writes.
struct MemoryAccess {
  std::vector<Range> reads, writes;

  explicit MemoryAccess(const OpCall& call) {
    const std::uint32_t written = volta::writes(*call.op, call.inputs.size());
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      add(call.inputs[i], writes_input(written, i) ? writes : reads);
    }
    for (const View& output : call.outputs) add(output, writes);
  }
  bool conflicts(const MemoryAccess& other) const {
    return any_overlap(writes, other.writes) || any_overlap(writes, other.reads) ||
           any_overlap(reads, other.writes);
  }

 private:
  static void add(const View& view, std::vector<Range>& to) {
    const auto begin = reinterpret_cast<std::uintptr_t>(view.data);
    const auto bytes = static_cast<std::uintptr_t>(view.spec().bytes());
    if (bytes > 0) to.push_back({begin, begin + bytes});
  }
  static bool any_overlap(const std::vector<Range>& a, const std::vector<Range>& b) {
    return std::ranges::any_of(a, [&](const Range& one) {
      return std::ranges::any_of(b, [&](const Range& other) { return one.overlaps(other); });
    });
  }
};

cuda::Args args_of(const OpCall& call) { return {call.inputs, call.outputs, call.workspace}; }

// A group before its tables are in the GPU's memory.
struct Draft {
  std::size_t unit = 0;
  std::vector<cuda::GroupCall> calls = {};
  std::vector<cuda::GroupChunk> chunks = {};
  std::int64_t calls_offset = 0, chunks_offset = 0;
};

// The end of the group that begins with call `begin`, whose calls are appended to `group`.
std::size_t extend(std::span<const OpCall> calls, std::size_t begin,
                   std::vector<cuda::GroupCall>& group) {
  std::vector<MemoryAccess> accesses;
  std::size_t end = begin;
  for (; end < calls.size() && end - begin < kMostCalls; ++end) {
    const OpCall& call = calls[end];
    const auto grouped = cuda::group_call(*call.op, args_of(call));
    if (!grouped || call.may_stop != calls[begin].may_stop) break;
    if (!cuda::same_group(*calls[begin].op, args_of(calls[begin]), *call.op, args_of(call))) break;
    MemoryAccess access(call);
    if (std::ranges::any_of(accesses,
                            [&](const MemoryAccess& other) { return access.conflicts(other); }))
      break;
    accesses.push_back(std::move(access));
    group.push_back(*grouped);
  }
  return std::max(end, begin + 1);
}

template <typename T>
std::int64_t place(const std::vector<T>& items, std::int64_t& bytes) {
  const std::int64_t offset = bytes;
  bytes += round_up(std::ssize(items) * static_cast<std::int64_t>(sizeof(T)), std::int64_t{256});
  return offset;
}

}  // namespace

Result<CudaUnits> make_units(std::span<const OpCall> calls,
                             const std::shared_ptr<MemoryOwner>& memory) {
  CudaUnits result;
  std::vector<Draft> drafts;
  std::int64_t bytes = 0;
  for (std::size_t begin = 0; begin < calls.size();) {
    Draft draft{.unit = result.units.size()};
    std::size_t end = extend(calls, begin, draft.calls);
    if (end - begin > 1) {
      if (auto chunks = cuda::group_chunks(draft.calls)) {
        draft.chunks = *std::move(chunks);
        draft.calls_offset = place(draft.calls, bytes);
        draft.chunks_offset = place(draft.chunks, bytes);
        drafts.push_back(std::move(draft));
      } else {
        end = begin + 1;
      }
    }
    result.units.push_back({begin, end, {}});
    begin = end;
  }
  if (bytes == 0) return result;
  VOLTA_TRY(result.tables, DeviceBuffer::allocate(memory, bytes));
  for (const Draft& draft : drafts) {
    VOLTA_TRY(result.tables->write(draft.calls_offset, std::as_bytes(std::span(draft.calls))));
    VOLTA_TRY(result.tables->write(draft.chunks_offset, std::as_bytes(std::span(draft.chunks))));
    // SAFETY: the tables begin at these offsets, which are multiples of 256.
    result.units[draft.unit].table = {
        static_cast<const cuda::GroupCall*>(result.tables->at_offset(draft.calls_offset)),
        static_cast<const cuda::GroupChunk*>(result.tables->at_offset(draft.chunks_offset)),
        std::ssize(draft.chunks)};
  }
  return result;
}

}  // namespace volta
