// Makes a plan from a graph: decides in which memory each value is stored, and for which steps.
// memory_planner chooses the offsets within the arena.
//
// The memory of a value is a binding or a block. A block holds one value after another: a later
// value takes it over if it is a reshape of the earlier one or is computed in place. Times are the
// indices of nodes.
#include "graph/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "graph/memory_planner.h"
#include "graph/schedule.h"

namespace volta {
namespace {

class Planner {
 public:
  Planner(const Graph& graph, const Backend& backend)
      : graph_(graph),
        backend_(backend),
        end_(static_cast<std::int64_t>(graph.nodes().size())),
        storage_(graph.values().size()),
        last_use_(graph.values().size(), -1) {}

  Result<Plan> run() {
    bind_values();
    find_last_uses();
    for (std::size_t i = 0; i < graph_.nodes().size(); ++i) VOLTA_TRY(visit(i));
    for (const GraphOutput& output : graph_.outputs()) {
      if (storage(output.value).block >= 0) block(storage(output.value).block).result = true;
    }
    const std::int32_t streams = backend_.streams();
    if (streams <= 1) {
      VOLTA_TRY(plan_.arena_bytes, place_blocks(blocks_));
      resolve();
    } else {
      const Schedule schedule = spread(streams);
      const auto together = [&](std::size_t a, std::size_t b) {
        return !ends_before(schedule, a, b) && !ends_before(schedule, b, a);
      };
      VOLTA_TRY(plan_.arena_bytes, place_blocks(blocks_, together));
      resolve();
      for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
        plan_.steps[i].stream = schedule.stream(i);
        plan_.steps[i].waits = schedule.waits(i);
      }
    }
    return std::move(plan_);
  }

 private:
  /// The memory of a value: either a binding or a block; the other one is -1.
  struct Storage {
    std::int32_t binding = -1;
    std::int32_t block = -1;
  };
  /// A step whose offsets are not known yet.
  struct Draft {
    std::size_t node = 0;
    std::int32_t workspace = -1;  ///< The block of its workspace, or -1.
  };

  static std::size_t index(ValueId id) { return static_cast<std::size_t>(id.index); }
  const Storage& storage(ValueId id) const { return storage_[index(id)]; }
  MemoryBlock& block(std::int32_t i) { return blocks_[static_cast<std::size_t>(i)]; }

  void bind_values() {
    for (std::size_t i = 0; i < graph_.values().size(); ++i) {
      const Value& value = graph_.values()[i];
      if (value.kind == ValueKind::kIntermediate) continue;
      storage_[i].binding = static_cast<std::int32_t>(plan_.bindings.size());
      plan_.bindings.push_back(
          {.name = value.name, .kind = value.kind, .spec = value.spec, .constant = value.constant});
    }
    writes_.resize(plan_.bindings.size());
  }

  /// Finds the last node that reads each value, directly or through reshapes of it. Outputs of the
  /// graph are in use to the end.
  void find_last_uses() {
    for (const GraphOutput& output : graph_.outputs()) last_use_[index(output.value)] = end_;
    for (std::int64_t i = end_; i-- > 0;) {
      const Node& node = graph_.nodes()[static_cast<std::size_t>(i)];
      const bool is_reshape = std::holds_alternative<Reshape>(node.op);
      const std::uint32_t written = writes(node.op, node.inputs.size());
      for (std::size_t j = 0; j < node.inputs.size(); ++j) {
        const std::size_t input = index(node.inputs[j]);
        const std::int64_t use = is_reshape ? std::max(i, last_use_[index(node.outputs[0])]) : i;
        last_use_[input] = std::max(last_use_[input], use);
        if (!writes_input(written, j)) continue;
        const auto binding = static_cast<std::size_t>(storage_[input].binding);
        writes_[binding].push_back(i);
        plan_.bindings[binding].written = true;
      }
    }
  }

  Status visit(std::size_t i) {
    const Node& node = graph_.nodes()[i];
    if (std::holds_alternative<Reshape>(node.op) && can_share(node, static_cast<std::int64_t>(i))) {
      storage_[index(node.outputs[0])] = storage(node.inputs[0]);
      return {};
    }
    VOLTA_TRY(const std::int64_t workspace, check_backend(i));
    const auto step = static_cast<std::int64_t>(i);
    Draft draft{.node = i};
    if (workspace > 0) draft.workspace = add_block(workspace, step, step);
    VOLTA_TRY(add_aligned(plan_.arena_bytes_unshared, workspace));
    for (std::size_t j = 0; j < node.outputs.size(); ++j) {
      const ValueId output = node.outputs[j];
      const std::int64_t bytes = graph_.spec(output).bytes();
      const std::int64_t last = std::max(step, last_use_[index(output)]);
      const std::int32_t reused = j == 0 ? block_to_reuse(node, step) : -1;
      if (reused >= 0) block(reused).last = last;
      storage_[index(output)].block = reused >= 0 ? reused : add_block(bytes, step, last);
      VOLTA_TRY(add_aligned(plan_.arena_bytes_unshared, bytes));
    }
    drafts_.push_back(draft);
    return {};
  }

  /// Whether a reshape can share the memory of its input. It must be a copy if the input is a
  /// binding that is written while the reshape still has readers, because they need the old bytes.
  bool can_share(const Node& reshape, std::int64_t step) const {
    const std::int32_t binding = storage(reshape.inputs[0]).binding;
    if (binding < 0) return true;
    const std::int64_t last = last_use_[index(reshape.outputs[0])];
    return std::ranges::none_of(writes_[static_cast<std::size_t>(binding)],
                                [&](std::int64_t at) { return at > step && at <= last; });
  }

  /// The bytes of workspace for a node; an error if the backend does not support the node.
  Result<std::int64_t> check_backend(std::size_t i) const {
    const Node& node = graph_.nodes()[i];
    const std::vector<TensorSpec> inputs = specs(node.inputs);
    const std::vector<TensorSpec> outputs = specs(node.outputs);
    if (!backend_.supports(node.op, inputs)) {
      std::string types;
      for (const TensorSpec& spec : inputs) types += " " + to_string(spec);
      return fail(ErrorCode::kUnsupported,
                  fmt::format("node {} '{}': the device has no kernel for {} of{}", i, node.label,
                              to_string(node.op), types));
    }
    const std::int64_t bytes = backend_.workspace_bytes(node.op, inputs, outputs);
    if (bytes < 0 || bytes > kMaxTensorBytes) {
      return fail(ErrorCode::kInternal,
                  fmt::format("node {} '{}': {} asks for a workspace of {} bytes", i, node.label,
                              op_name(node.op), bytes));
    }
    return bytes;
  }

  std::vector<TensorSpec> specs(std::span<const ValueId> ids) const {
    std::vector<TensorSpec> result;
    for (const ValueId id : ids) result.push_back(graph_.spec(id));
    return result;
  }

  /// Adds a block and returns its index.
  std::int32_t add_block(std::int64_t bytes, std::int64_t first, std::int64_t last) {
    blocks_.push_back({.bytes = bytes, .first = first, .last = last});
    return static_cast<std::int32_t>(blocks_.size()) - 1;
  }

  /// The block of an input that output 0 may overwrite, or -1. No later step may need the block,
  /// and every input of the node in this block must allow it (may_alias) and have the layout of
  /// output 0.
  std::int32_t block_to_reuse(const Node& node, std::int64_t step) {
    for (const ValueId candidate : node.inputs) {
      const std::int32_t reused = storage(candidate).block;
      if (reused < 0 || block(reused).last != step) continue;
      bool fits = true;
      for (std::size_t j = 0; j < node.inputs.size(); ++j) {
        if (storage(node.inputs[j]).block != reused) continue;
        fits = fits && may_alias(node.op, j) &&
               same_layout(graph_.spec(node.inputs[j]), graph_.spec(node.outputs[0]));
      }
      if (fits) return reused;
    }
    return -1;
  }

  /// Whether element j is at the same bytes in both.
  static bool same_layout(const TensorSpec& a, const TensorSpec& b) {
    return a.shape.elements() == b.shape.elements() && dtype_size(a.dtype) == dtype_size(b.dtype);
  }

  PlanOperand operand(ValueId id) {
    const Storage where = storage(id);
    const std::int64_t offset = where.binding >= 0 ? 0 : block(where.block).offset;
    return {.spec = graph_.spec(id), .binding = where.binding, .offset = offset};
  }

  /// The steps that use a block and whose order matters: the first one, and the last one in each
  /// stream.
  struct BlockUse {
    std::size_t first = 0;
    std::vector<std::size_t> last;
  };
  /// The bindings and blocks that a step reads and writes. The numbers of blocks follow those of
  /// the bindings.
  struct Access {
    std::vector<std::size_t> reads;
    std::vector<std::size_t> writes;
  };
  Access access(const Draft& draft) const {
    const Node& node = graph_.nodes()[draft.node];
    const std::uint32_t written = writes(node.op, node.inputs.size());
    const auto place = [&](ValueId id) {
      const Storage where = storage(id);
      return where.binding >= 0 ? static_cast<std::size_t>(where.binding)
                                : plan_.bindings.size() + static_cast<std::size_t>(where.block);
    };
    Access result;
    for (std::size_t j = 0; j < node.inputs.size(); ++j) {
      result.reads.push_back(place(node.inputs[j]));
      if (writes_input(written, j)) result.writes.push_back(place(node.inputs[j]));
    }
    for (const ValueId id : node.outputs) result.writes.push_back(place(id));
    if (draft.workspace >= 0) {
      result.writes.push_back(plan_.bindings.size() + static_cast<std::size_t>(draft.workspace));
    }
    return result;
  }

  /// Assigns a stream to every step, and records the steps that use each block.
  Schedule spread(std::int32_t streams) {
    Schedule schedule(streams, plan_.bindings.size() + blocks_.size());
    uses_.resize(blocks_.size());
    for (std::size_t step = 0; step < drafts_.size(); ++step) {
      const Access done = access(drafts_[step]);
      schedule.add(done.reads, done.writes);
      for (const auto& places : {done.reads, done.writes}) {
        for (const std::size_t place : places) {
          if (place >= plan_.bindings.size())
            note_use(schedule, place - plan_.bindings.size(), step);
        }
      }
    }
    return schedule;
  }

  void note_use(const Schedule& schedule, std::size_t block, std::size_t step) {
    BlockUse& use = uses_[block];
    if (use.last.empty()) use.first = step;
    const auto same_stream = std::ranges::find_if(
        use.last, [&](std::size_t user) { return schedule.stream(user) == schedule.stream(step); });
    if (same_stream == use.last.end()) {
      use.last.push_back(step);
    } else {
      *same_stream = step;
    }
  }

  /// Whether every step that uses block `a` has ended when block `b` is first used.
  bool ends_before(const Schedule& schedule, std::size_t a, std::size_t b) const {
    if (blocks_[a].last >= end_) return false;
    const auto has_ended = [&](std::size_t user) { return schedule.before(user, uses_[b].first); };
    return std::ranges::all_of(uses_[a].last, has_ended);
  }

  /// Fills in the plan when every block has its offset.
  void resolve() {
    for (const Draft& draft : drafts_) {
      const Node& node = graph_.nodes()[draft.node];
      PlanStep step{
          .op = node.op, .inputs = {}, .outputs = {}, .label = node.label, .node = draft.node};
      for (const ValueId id : node.inputs) step.inputs.push_back(operand(id));
      for (const ValueId id : node.outputs) step.outputs.push_back(operand(id));
      if (draft.workspace >= 0) {
        step.workspace_offset = block(draft.workspace).offset;
        step.workspace_bytes = block(draft.workspace).bytes;
      }
      plan_.steps.push_back(std::move(step));
    }
    for (const GraphOutput& output : graph_.outputs()) {
      plan_.outputs.push_back({output.name, operand(output.value)});
    }
  }

  const Graph& graph_;
  const Backend& backend_;
  std::int64_t end_;                               ///< The number of nodes: one past the last.
  std::vector<Storage> storage_;                   ///< By value.
  std::vector<std::int64_t> last_use_;             ///< By value.
  std::vector<std::vector<std::int64_t>> writes_;  ///< By binding: the steps that write it.
  std::vector<MemoryBlock> blocks_;
  std::vector<Draft> drafts_;
  std::vector<BlockUse> uses_;  ///< By block; used with several streams only.
  Plan plan_;
};

}  // namespace

Result<Plan> make_plan(const Graph& graph, const Backend& backend) {
  VOLTA_TRY(verify(graph));
  return Planner(graph, backend).run();
}

}  // namespace volta
