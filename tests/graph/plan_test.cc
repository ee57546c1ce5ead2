#include "graph/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include "build.h"
#include "interpreter.h"
#include "random_graph.h"

namespace volta {
namespace {

using testing::add;
using testing::Arrays;
using testing::f32;
using ::testing::HasSubstr;
using testing::message;
using testing::must;
using testing::TestBackend;

constexpr Unary kTanh{UnaryKind::kTanh};

Plan planned(const Graph& graph, const TestBackend& backend = {}) {
  return must(make_plan(graph, backend));
}

TEST(MakePlan, BindsWhatIsGivenAndPlacesWhatIsMade) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(2, 4))));
  const ValueId w = must(graph.parameter("w", f32(Shape(4, 4))));
  const ValueId s = must(graph.state("s", f32(Shape(2, 4))));
  const ValueId one = must(graph.filled(Shape(2, 2), 1.0f));
  graph.set_scope("layer");
  const ValueId y = add(graph, MatMul{}, {x, w});
  testing::write(graph, Accumulate{}, {s, y});
  must(graph.output("y", y));
  must(graph.output("one", one));
  const Plan plan = planned(graph);

  ASSERT_EQ(plan.bindings.size(), 4u);
  EXPECT_EQ(plan.bindings[0].name, "x");
  EXPECT_EQ(plan.bindings[1].kind, ValueKind::kParameter);
  EXPECT_EQ(plan.bindings[3].constant.bytes(), 16);
  EXPECT_FALSE(plan.bindings[0].written);
  EXPECT_TRUE(plan.bindings[2].written);
  ASSERT_EQ(plan.steps.size(), 2u);
  EXPECT_EQ(plan.steps[0].label, "layer");
  EXPECT_EQ(plan.steps[0].inputs[1].binding, 1);
  EXPECT_EQ(plan.steps[0].outputs[0].binding, -1);
  EXPECT_EQ(plan.steps[1].inputs[0].binding, 2);
  EXPECT_EQ(plan.outputs[0].operand.offset, plan.steps[0].outputs[0].offset);
  EXPECT_EQ(plan.outputs[1].operand.binding, 3);
  EXPECT_EQ(plan.arena_bytes, 64);
}

TEST(MakePlan, WorksInPlaceWhereNobodyLooks) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(64))));
  ValueId y = x;
  for (int i = 0; i < 5; ++i) y = add(graph, kTanh, {y});
  must(graph.output("y", y));
  const Plan plan = planned(graph);
  EXPECT_EQ(plan.arena_bytes, 256);
  EXPECT_EQ(plan.arena_bytes_unshared, 5 * 256);
}

TEST(MakePlan, DoesNotWorkInPlaceOnOutputsAndSharedValues) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(64))));
  const ValueId a = add(graph, kTanh, {x});
  const ValueId b = add(graph, kTanh, {a});  // a is an output,
  const ValueId c = add(graph, kTanh, {b});  // b is read again.
  must(graph.output("a", a));
  must(graph.output("d", add(graph, Binary{}, {c, b})));
  EXPECT_EQ(planned(graph).arena_bytes, 3 * 256);
}

TEST(MakePlan, DoesNotWorkInPlaceWhereElementsMove) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(64))));
  const ValueId a = add(graph, kTanh, {x});
  // The cast narrows; the product is no pointwise op.
  const ValueId b = add(graph, Cast{DType::kBF16}, {a});
  const ValueId c = add(graph, Cast{DType::kF32}, {b});
  const ValueId d = add(graph, Reshape{Shape(8, 8)}, {c});
  const ValueId e = add(graph, MatMul{}, {d, d});
  must(graph.output("e", e));
  const Plan plan = planned(graph);
  for (const PlanStep& step : plan.steps) {
    for (const PlanOperand& input : step.inputs) {
      EXPECT_TRUE(input.binding >= 0 || input.offset != step.outputs[0].offset);
    }
  }
}

TEST(MakePlan, ReshapesAreFree) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(4, 8))));
  const ValueId flat = add(graph, Reshape{Shape(32)}, {x});
  const ValueId y = add(graph, kTanh, {flat});
  const ValueId z = add(graph, Reshape{Shape(2, 16)}, {y});
  must(graph.output("x again", add(graph, Reshape{Shape(8, 4)}, {flat})));
  must(graph.output("z", z));
  const Plan plan = planned(graph);
  ASSERT_EQ(plan.steps.size(), 1u);
  EXPECT_EQ(plan.steps[0].inputs[0].binding, 0);
  EXPECT_EQ(plan.steps[0].inputs[0].spec, f32(Shape(32)));
  EXPECT_EQ(plan.outputs[0].operand.binding, 0);
  EXPECT_EQ(plan.outputs[0].operand.spec, f32(Shape(8, 4)));
  EXPECT_EQ(plan.outputs[1].operand.offset, plan.steps[0].outputs[0].offset);
  EXPECT_EQ(plan.outputs[1].operand.spec, f32(Shape(2, 16)));
  EXPECT_EQ(plan.arena_bytes_unshared, 128);
}

TEST(MakePlan, AReshapeKeepsItsSourceAlive) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(64))));
  const ValueId a = add(graph, kTanh, {x});
  const ValueId flat = add(graph, Reshape{Shape(8, 8)}, {a});
  const ValueId b = add(graph, kTanh, {a});  // The last use of a by itself.
  must(graph.output("c", add(graph, MatMul{}, {flat, flat})));
  must(graph.output("b", b));
  const Plan plan = planned(graph);
  EXPECT_NE(plan.steps[0].outputs[0].offset, plan.steps[1].outputs[0].offset);
}

TEST(MakePlan, AReshapeOfWhatIsWrittenBeforeItsLastReadIsACopy) {
  const auto steps = [](bool read_after_write, bool output, bool write_again) {
    Graph graph;
    const ValueId x = must(graph.input("x", f32(Shape(8))));
    const ValueId s = must(graph.state("s", f32(Shape(2, 4))));
    const ValueId flat = add(graph, Reshape{Shape(8)}, {s});
    if (!read_after_write) must(graph.output("y", add(graph, kTanh, {flat})));
    testing::write(graph, Fill{3.0f}, {s});
    if (read_after_write) must(graph.output("y", add(graph, kTanh, {flat})));
    if (output) must(graph.output("flat", flat));
    if (write_again) testing::write(graph, Fill{4.0f}, {s});
    must(graph.output("z", add(graph, Binary{}, {x, x})));

    const Plan plan = planned(graph);
    Arrays for_graph = testing::make_bindings(graph);
    Arrays for_plan = for_graph;
    EXPECT_EQ(testing::bits(testing::run_graph(graph, for_graph)),
              testing::bits(testing::run_plan(plan, for_plan)));
    EXPECT_EQ(testing::bits(for_graph), testing::bits(for_plan));
    return plan.steps.size();
  };
  EXPECT_EQ(steps(false, false, false), 3u);  // Read before the write: shared.
  EXPECT_EQ(steps(true, false, false), 4u);   // Read after it: a copy.
  EXPECT_EQ(steps(true, false, true), 5u);    // A later write does not hide the first one.
  EXPECT_EQ(steps(false, true, false), 4u);   // An output is read at the end.
}

TEST(MakePlan, ReservesWorkspaceForOneStep) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(16, 16))));
  const ValueId a = add(graph, MatMul{}, {x, x});
  const ValueId b = add(graph, MatMul{}, {a, a});
  must(graph.output("b", b));
  TestBackend backend;
  backend.workspace = [](const Op&) { return 100; };
  const Plan plan = planned(graph, backend);
  EXPECT_EQ(plan.steps[0].workspace_bytes, 100);
  EXPECT_EQ(plan.steps[1].workspace_bytes, 100);
  EXPECT_EQ(plan.arena_bytes, 1024 + 1024 + 128);
  EXPECT_EQ(plan.arena_bytes_unshared, 2 * (1024 + 128));
}

TEST(MakePlan, SaysWhatTheBackendCannotDo) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(2, 2))));
  graph.set_scope("here");
  add(graph, MatMul{}, {x, x});
  TestBackend backend;
  backend.supported = [](const Op&, auto) { return false; };
  EXPECT_EQ(message(make_plan(graph, backend)),
            "node 0 'here': the device has no kernel for MatMul of f32[2, 2] f32[2, 2]");
  backend.supported = nullptr;
  for (const std::int64_t bytes : {std::int64_t{-1}, kMaxTensorBytes + 1}) {
    backend.workspace = [&](const Op&) { return bytes; };
    EXPECT_THAT(message(make_plan(graph, backend)),
                HasSubstr("node 0 'here': MatMul asks for a workspace of"));
  }
}

TEST(MakePlan, ChecksThatTheSizesAddUp) {
  Graph graph;
  const ValueId one = must(graph.input("one", f32(Shape())));
  // Each step asks for 2^46 bytes; 2^17 of them are 2^63.
  TestBackend backend;
  backend.workspace = [](const Op&) { return kMaxTensorBytes; };
  for (int i = 0; i <= (1 << 17); ++i) add(graph, kTanh, {one});
  EXPECT_THAT(message(make_plan(graph, backend)), HasSubstr("exceed 2^63 bytes"));
}

// Follows a plan with a tag for every byte of the arena: what a value's bytes hold must be that
// value's whenever it is read. Knows nothing of live ranges.
class TagSimulation {
 public:
  TagSimulation(const Graph& graph, const Plan& plan)
      : graph_(graph),
        plan_(plan),
        tags_(static_cast<std::size_t>(plan.arena_bytes), kGarbage),
        value_tag_(graph.values().size()) {
    std::iota(value_tag_.begin(), value_tag_.end(), 0);
  }

  void run() {
    std::size_t next = 0;
    for (const Node& node : graph_.nodes()) {
      const bool has_step =
          next < plan_.steps.size() && plan_.steps[next].label == node.label;  // Labels differ.
      if (has_step) {
        check_step(node, plan_.steps[next++]);
      } else {
        RC_ASSERT(std::holds_alternative<Reshape>(node.op));
        tag(node.outputs[0]) = tag(node.inputs[0]);
      }
    }
    RC_ASSERT(next == plan_.steps.size());
    for (std::size_t i = 0; i < plan_.outputs.size(); ++i) {
      check_read(graph_.outputs()[i].value, plan_.outputs[i].operand);
    }
  }

 private:
  static constexpr int kGarbage = -1;

  int& tag(ValueId id) { return value_tag_[static_cast<std::size_t>(id.index)]; }

  std::span<int> bytes(std::int64_t offset, std::int64_t length) {
    RC_ASSERT(offset >= 0 && offset % kArenaAlignment == 0);
    RC_ASSERT(offset + length <= plan_.arena_bytes);
    return std::span(tags_).subspan(static_cast<std::size_t>(offset),
                                    static_cast<std::size_t>(length));
  }

  void check_read(ValueId id, const PlanOperand& operand) {
    RC_ASSERT(operand.spec == graph_.spec(id));
    if (operand.binding >= 0) {  // The value itself, or what it is a reshape of.
      const auto& root = graph_.values()[static_cast<std::size_t>(tag(id))];
      RC_ASSERT(plan_.bindings[static_cast<std::size_t>(operand.binding)].name == root.name);
      RC_ASSERT(operand.offset == 0);
      return;
    }
    for (const int found : bytes(operand.offset, operand.spec.bytes())) {
      RC_ASSERT(found == tag(id));
    }
  }

  static bool overlap(const PlanOperand& operand, std::int64_t offset, std::int64_t length) {
    return operand.binding < 0 && operand.offset < offset + length &&
           offset < operand.offset + operand.spec.bytes();
  }

  void check_step(const Node& node, const PlanStep& step) {
    RC_ASSERT(step.op == node.op);
    RC_ASSERT(step.inputs.size() == node.inputs.size());
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      check_read(node.inputs[i], step.inputs[i]);
      RC_ASSERT(!overlap(step.inputs[i], step.workspace_offset, step.workspace_bytes));
      for (std::size_t j = 0; j < step.outputs.size(); ++j) {
        check_in_place(node, step, i, j);
      }
    }
    std::ranges::fill(bytes(step.workspace_offset, step.workspace_bytes), kGarbage);
    for (std::size_t j = 0; j < step.outputs.size(); ++j) {
      const PlanOperand& output = step.outputs[j];
      RC_ASSERT(output.binding == -1);
      RC_ASSERT(!overlap(output, step.workspace_offset, step.workspace_bytes));
      for (std::size_t k = 0; k < j; ++k) {
        RC_ASSERT(!overlap(step.outputs[k], output.offset, output.spec.bytes()));
      }
      std::ranges::fill(bytes(output.offset, output.spec.bytes()), tag(node.outputs[j]));
    }
  }

  // An output may lie on an input only where the op allows it, element on element.
  static void check_in_place(const Node& node, const PlanStep& step, std::size_t i, std::size_t j) {
    const PlanOperand& input = step.inputs[i];
    const PlanOperand& output = step.outputs[j];
    if (!overlap(input, output.offset, output.spec.bytes())) return;
    RC_ASSERT(j == 0);
    RC_ASSERT(may_alias(node.op, i));
    RC_ASSERT(input.offset == output.offset);
    RC_ASSERT(input.spec.shape.elements() == output.spec.shape.elements());
    RC_ASSERT(dtype_size(input.spec.dtype) == dtype_size(output.spec.dtype));
  }

  const Graph& graph_;
  const Plan& plan_;
  std::vector<int> tags_;
  std::vector<int> value_tag_;
};

TestBackend backend_with_workspace() {
  TestBackend backend;
  backend.workspace = [](const Op& op) { return std::holds_alternative<MatMul>(op) ? 200 : 0; };
  return backend;
}

using Tape = std::vector<std::uint32_t>;

RC_GTEST_PROP(MakePlan, NoLiveValueIsOverwritten, (const Tape& tape)) {
  const Graph graph = testing::random_graph(tape);
  const Plan plan = planned(graph, backend_with_workspace());
  RC_ASSERT(plan.arena_bytes <= plan.arena_bytes_unshared);
  TagSimulation(graph, plan).run();
}

RC_GTEST_PROP(MakePlan, APlanComputesWhatItsGraphDoes, (const Tape& tape)) {
  const Graph graph = testing::random_graph(tape);
  const Plan plan = planned(graph, backend_with_workspace());
  Arrays for_graph = testing::make_bindings(graph);
  Arrays for_plan = for_graph;
  const auto expected = testing::bits(testing::run_graph(graph, for_graph));
  RC_ASSERT(testing::bits(testing::run_plan(plan, for_plan)) == expected);
  RC_ASSERT(testing::bits(for_plan) == testing::bits(for_graph));
}

// Any order that the streams and waits of a plan allow, drawn step by step.
std::vector<std::size_t> some_order(const Plan& plan) {
  std::vector<std::size_t> order;
  std::vector<bool> ended(plan.steps.size(), false);
  while (order.size() < plan.steps.size()) {
    std::vector<std::size_t> ready;
    std::set<std::int32_t> blocked;  // Streams whose next step is not the one looked at.
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
      const PlanStep& step = plan.steps[i];
      if (ended[i] || !blocked.insert(step.stream).second) continue;
      const auto has_ended = [&](std::size_t wait) { return ended[wait]; };
      if (std::ranges::all_of(step.waits, has_ended)) ready.push_back(i);
    }
    RC_ASSERT(!ready.empty());
    const std::size_t next = ready[*rc::gen::inRange<std::size_t>(0, ready.size())];
    ended[next] = true;
    order.push_back(next);
  }
  return order;
}

// With several streams, a plan computes what its graph does in every order that it allows.
RC_GTEST_PROP(MakePlan, StreamsMayRunInAnyOrder, (const Tape& tape)) {
  const Graph graph = testing::random_graph(tape);
  TestBackend backend = backend_with_workspace();
  backend.stream_count = *rc::gen::inRange(2, 5);
  const Plan plan = planned(graph, backend);
  RC_ASSERT(plan.arena_bytes <= plan.arena_bytes_unshared);
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    RC_ASSERT(plan.steps[i].stream >= 0 && plan.steps[i].stream < backend.stream_count);
    for (const std::size_t wait : plan.steps[i].waits) {
      RC_ASSERT(wait < i && plan.steps[wait].stream != plan.steps[i].stream);
    }
  }
  Arrays for_graph = testing::make_bindings(graph);
  Arrays for_plan = for_graph;
  const auto expected = testing::bits(testing::run_graph(graph, for_graph));
  RC_ASSERT(testing::bits(testing::run_plan(plan, for_plan, some_order(plan))) == expected);
  RC_ASSERT(testing::bits(for_plan) == testing::bits(for_graph));
}

// Two chains that have nothing in common until they are added up.
TEST(MakePlan, IndependentStepsGetStreamsOfTheirOwn) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(64))));
  const ValueId a = add(graph, kTanh, {x});
  const ValueId b = add(graph, Unary{UnaryKind::kExp}, {x});
  const ValueId c = add(graph, kTanh, {a});
  const ValueId d = add(graph, kTanh, {b});
  must(graph.output("y", add(graph, Binary{BinaryKind::kAdd}, {c, d})));
  TestBackend backend;
  backend.stream_count = 2;
  const Plan plan = planned(graph, backend);
  ASSERT_EQ(plan.steps.size(), 5u);
  const std::vector<std::int32_t> streams = {0, 1, 0, 1, 1};
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(plan.steps[i].stream, streams[i]) << i;
    EXPECT_EQ(plan.steps[i].waits.size(), i == 4 ? 1u : 0u) << i;
  }
  EXPECT_EQ(plan.steps[4].waits[0], 2u);
  EXPECT_NE(plan.steps[2].outputs[0].offset, plan.steps[3].outputs[0].offset);
  EXPECT_THAT(to_text(plan), HasSubstr(" stream 1 after 2"));
  // One stream knows no waits.
  for (const PlanStep& step : planned(graph).steps) {
    EXPECT_EQ(step.stream, 0);
    EXPECT_TRUE(step.waits.empty());
  }
}

// A step that writes a state comes after those that read the old one, in whatever stream.
TEST(MakePlan, WritesWaitForReaders) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(8))));
  const ValueId s = must(graph.state("s", f32(Shape(8))));
  const ValueId old = add(graph, kTanh, {s});
  const ValueId y = add(graph, kTanh, {x});
  testing::write(graph, Accumulate{}, {s, y});
  must(graph.output("old", old));
  TestBackend backend;
  backend.stream_count = 2;
  const Plan plan = planned(graph, backend);
  ASSERT_EQ(plan.steps.size(), 3u);
  EXPECT_NE(plan.steps[0].stream, plan.steps[1].stream);
  EXPECT_EQ(plan.steps[2].stream, plan.steps[1].stream);
  EXPECT_EQ(plan.steps[2].waits, std::vector<std::size_t>{0});
}

RC_GTEST_PROP(MakePlan, TheSameGraphGivesTheSamePlan, (const Tape& tape)) {
  const Graph graph = testing::random_graph(tape);
  const std::string first = to_json(planned(graph, backend_with_workspace()));
  RC_ASSERT(to_json(planned(testing::random_graph(tape), backend_with_workspace())) == first);
}

}  // namespace
}  // namespace volta
