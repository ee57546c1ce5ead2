// Executable: addresses, lookups and their refusals, plans that point outside their memory, moves.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>

#include "device/checking_device.h"
#include "device/helpers.h"
#include "device/profiling_device.h"
#include "support/async_device.h"
#include "support/fault_device.h"

namespace volta {
namespace {

using test::expect_error;
using test::f32;
using test::floats;
using test::values;
using ::testing::ElementsAre;

std::shared_ptr<const Plan> shared(Plan plan) {
  return std::make_shared<const Plan>(std::move(plan));
}

Result<Tensor> lookup_on_host(const PlanBinding& binding) {
  return test::matmul_relu_tensor(binding, host_memory());
}

TEST(Executable, RunsAndGivesOutputsAndBindings) {
  const auto device = test::cpu();
  auto bound = test::bind_matmul_relu(*device);
  ASSERT_TRUE(bound) << bound.error().message();
  EXPECT_EQ(bound->plan().steps.size(), 2u);
  ASSERT_EQ(bound->calls().size(), 2u);
  EXPECT_EQ(bound->calls()[0].label, "layer");
  EXPECT_EQ(bound->calls()[0].workspace.size(), std::size_t{1} << 16);
  ASSERT_TRUE(bound->run());
  EXPECT_THAT(values(bound->output("y")), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(values(bound->binding("w")), ElementsAre(1, -1, 0, 1, -1, 0));

  // A new input, written through the binding, is what the next run sees.
  Tensor x = *bound->binding("x");
  ASSERT_TRUE(x.write<float>(std::array{3.0f, 2.0f, 1.0f, 0.0f, 0.0f, 0.0f}));
  ASSERT_TRUE(bound->run());
  EXPECT_THAT(values(bound->output("y")), ElementsAre(2, 0, 0, 0));
}

TEST(Executable, UnknownNamesListTheKnownOnes) {
  const auto device = test::cpu();
  const auto bound = test::bind_matmul_relu(*device);
  ASSERT_TRUE(bound);
  expect_error(bound->binding("v"), ErrorCode::kNotFound, "no 'v'; it binds: x, w");
  expect_error(bound->output("z"), ErrorCode::kNotFound, "no output 'z'; it has: y");
}

TEST(Executable, MovesKeepEveryAddress) {
  const auto device = test::cpu();
  auto first = test::bind_matmul_relu(*device);
  ASSERT_TRUE(first);
  const void* address = first->calls()[0].inputs[0].data;
  Executable second = *std::move(first);
  auto other = test::bind_matmul_relu(*device);
  ASSERT_TRUE(other);
  *other = std::move(second);
  EXPECT_EQ(other->calls()[0].inputs[0].data, address);
  ASSERT_TRUE(other->run());
  EXPECT_THAT(values(other->output("y")), ElementsAre(0, 1, 0, 1));
}

TEST(Executable, KeepsPlanAndTensorsAlive) {
  const auto device = test::cpu();
  std::optional<Executable> bound;
  {
    auto made = test::bind_matmul_relu(*device);
    ASSERT_TRUE(made);
    bound = *std::move(made);
  }
  ASSERT_TRUE(bound->run());
  const Tensor y = *bound->output("y");
  bound.reset();
  EXPECT_THAT(values(y), ElementsAre(0, 1, 0, 1));  // The arena lives with its window.
}

TEST(Executable, LookupErrorsNameTheBinding) {
  const auto device = test::cpu();
  const auto plan = shared(test::matmul_relu_plan());
  expect_error(device->load(nullptr, lookup_on_host), ErrorCode::kInvalidArgument, "no plan");
  expect_error(device->load(plan, nullptr), ErrorCode::kInvalidArgument,
               "binding input 'x': no lookup was given");
  expect_error(device->load(plan,
                            [](const PlanBinding& binding) -> Result<Tensor> {
                              if (binding.name == "x") return lookup_on_host(binding);
                              return fail(ErrorCode::kNotFound, "not in the file");
                            }),
               ErrorCode::kNotFound, "binding parameter 'w': not in the file");
  expect_error(device->load(plan, [](const PlanBinding&) -> Result<Tensor> { return Tensor(); }),
               ErrorCode::kInvalidArgument,
               "binding input 'x': the plan needs f32[2, 3], but the lookup gave f32[0]");
}

TEST(Executable, MemoryMustBeTheDevices) {
  const auto cpu = test::cpu();
  test::FaultyDevice gpu(cpu, false);
  const auto plan = shared(test::matmul_relu_plan());
  expect_error(gpu.load(plan, lookup_on_host), ErrorCode::kInvalidArgument,
               "its tensor (f32[2, 3]) is not in the memory of device 'cpu'");
  const auto on_gpu = [&](const PlanBinding& binding) {
    return test::matmul_relu_tensor(binding, gpu.memory());
  };
  expect_error(cpu->load(plan, on_gpu), ErrorCode::kInvalidArgument, "copy it there");
  auto bound = gpu.load(plan, on_gpu);
  ASSERT_TRUE(bound) << bound.error().message();
  ASSERT_TRUE(bound->run());
  EXPECT_THAT(values(bound->output("y")), ElementsAre(0, 1, 0, 1));
}

TEST(Executable, ForeignHostMemoryIsReadButNotWritten) {
  const auto cpu = test::cpu();
  const auto foreign = std::make_shared<test::FaultyMemory>(true);
  const auto lookup = [&](const PlanBinding& binding) {
    return test::matmul_relu_tensor(binding, foreign);
  };
  Plan plan = test::matmul_relu_plan();
  EXPECT_TRUE(cpu->load(shared(plan), lookup));
  plan.bindings[0].written = true;
  expect_error(cpu->load(shared(plan), lookup), ErrorCode::kInvalidArgument,
               "which would write to it");
}

TEST(Executable, ConstantsAreCopiedToTheDevice) {
  const auto cpu = test::cpu();
  test::FaultyDevice gpu(cpu, false);
  Plan plan = test::matmul_relu_plan();
  plan.bindings[1].kind = ValueKind::kConstant;
  plan.bindings[1].constant = floats(Shape(3, 2), {1, -1, 0, 1, -1, 0});
  for (Device* device : {static_cast<Device*>(cpu.get()), static_cast<Device*>(&gpu)}) {
    auto bound = device->load(shared(plan), [&](const PlanBinding& binding) {
      EXPECT_EQ(binding.name, "x");  // Constants are not looked up.
      return test::matmul_relu_tensor(binding, device->memory());
    });
    ASSERT_TRUE(bound) << bound.error().message();
    EXPECT_EQ(bound->binding("w")->buffer()->owner(), device->memory());
    ASSERT_TRUE(bound->run());
    EXPECT_THAT(values(bound->output("y")), ElementsAre(0, 1, 0, 1));
  }
  gpu.faulty_memory().copy_fuse.arm(2);  // The first copy is x's.
  expect_error(gpu.load(shared(plan),
                        [&](const PlanBinding& binding) {
                          return test::matmul_relu_tensor(binding, gpu.memory());
                        }),
               ErrorCode::kDevice, "binding constant 'w': injected: copy failed");
}

TEST(Executable, ArenaThatDoesNotFitIsAnError) {
  test::FaultyDevice device(test::cpu());
  device.faulty_memory().allocation_fuse.arm(1);  // The arena comes before any lookup.
  expect_error(test::bind_matmul_relu(device), ErrorCode::kOutOfMemory,
               "allocating the plan's arena: injected");
  EXPECT_EQ(device.faulty_memory().allocations(), 1);
  EXPECT_EQ(device.faulty_memory().live_bytes(), 0);
}

// Two plans take turns in one arena: each run gives its own results, and there is one block.
TEST(Executable, PlansMayShareAnArena) {
  test::FaultyDevice device(test::cpu());
  const auto plan = shared(test::matmul_relu_plan());
  const auto lookup = [&](const PlanBinding& binding) {
    return test::matmul_relu_tensor(binding, device.memory());
  };
  const auto block = [&](std::int64_t bytes, const std::shared_ptr<MemoryOwner>& owner) {
    return std::make_shared<DeviceBuffer>(*DeviceBuffer::allocate(owner, bytes));
  };
  const auto arena = block(plan->arena_bytes + 64, device.memory());
  const std::int64_t allocations = device.faulty_memory().allocations();
  auto first = device.load(plan, lookup, arena);
  auto second = device.load(plan, lookup, arena);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(device.faulty_memory().allocations(), allocations + 4);  // x and w of both.
  Tensor x = *second->binding("x");
  ASSERT_TRUE(x.write<float>(std::array{3.0f, 2.0f, 1.0f, 0.0f, 0.0f, 0.0f}));
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(first->run());
    EXPECT_THAT(values(first->output("y")), ElementsAre(0, 1, 0, 1));
    ASSERT_TRUE(second->run());
    EXPECT_THAT(values(second->output("y")), ElementsAre(2, 0, 0, 0));
  }

  const auto invalid = ErrorCode::kInvalidArgument;
  expect_error(device.load(plan, lookup, block(plan->arena_bytes - 64, device.memory())), invalid,
               "give it a larger one");
  expect_error(device.load(plan, lookup, block(plan->arena_bytes, host_memory())), invalid,
               "not in the memory of device");
  const auto inside = [&](const PlanBinding& binding) -> Result<std::optional<Tensor>> {
    return Tensor::from_buffer(arena, 0, binding.spec);
  };
  expect_error(device.load(plan, inside, arena), invalid, "its tensor lies in the plan's arena");
}

// With several streams, steps that come later in a plan may have run before an earlier one: no run
// is given up where one of them changes a parameter.
TEST(Executable, RunsThatChangeParametersInStreamsAreNotGivenUp) {
  const auto device = std::make_shared<test::AsyncDevice>(test::cpu(), 2);
  const auto stops = [&](bool writes, std::int32_t stream) {
    Plan plan = test::matmul_relu_plan();
    if (writes) {
      // w += w, which the planner would never make; here only what is said of the steps counts.
      PlanStep update{.op = Accumulate{}, .inputs = {}, .outputs = {}, .label = "update"};
      update.inputs = {plan.steps[0].inputs[1], plan.steps[0].inputs[1]};
      update.stream = stream;
      plan.steps.push_back(update);
      plan.bindings[1].written = true;
    } else {
      plan.steps[1].stream = stream;
      plan.steps[1].waits = {0};
    }
    const auto loaded = device->load(shared(plan), [&](const PlanBinding& binding) {
      return test::matmul_relu_tensor(binding, device->memory());
    });
    EXPECT_TRUE(loaded) << loaded.error().message();
    return loaded && loaded->calls()[1].may_stop;
  };
  EXPECT_TRUE(stops(false, 0));
  EXPECT_TRUE(stops(false, 1));
  EXPECT_TRUE(stops(true, 0));
  EXPECT_FALSE(stops(true, 1));
}

// A plan from a file may name any stream.
TEST(Executable, AStreamThatTheDeviceDoesNotHaveIsRefused) {
  const auto refuses = [](Device& device, std::int32_t stream, const std::string& text) {
    Plan plan = test::matmul_relu_plan();
    plan.steps[1].stream = stream;
    plan.steps[1].waits = {0};
    const auto lookup = [&](const PlanBinding& binding) {
      return test::matmul_relu_tensor(binding, device.memory());
    };
    expect_error(device.load(shared(plan), lookup), ErrorCode::kInvalidArgument, text);
  };
  const auto cpu = test::cpu();
  refuses(*cpu, 1,
          "plan step 2 of 2, Unary{relu} 'layer.relu': it runs in stream 1, and device "
          "'cpu' has 1 (from 0): was the plan made for another device?");
  refuses(*cpu, -1, "it runs in stream -1");
  const auto two = std::make_shared<test::AsyncDevice>(cpu, 2);
  refuses(*two, 2, "it runs in stream 2, and device 'cpu' has 2");
}

TEST(Executable, OutputsMayBeBindings) {
  const auto device = test::cpu();
  Plan plan = test::matmul_relu_plan();
  // The second row of w, and an output without elements.
  plan.outputs.push_back({"w_row", {.spec = f32(Shape(2)), .binding = 1, .offset = 8}});
  plan.bindings.push_back(
      {.name = "none", .kind = ValueKind::kInput, .spec = f32(Shape(0, 4)), .constant = {}});
  plan.outputs.push_back({"nothing", {.spec = f32(Shape(0, 4)), .binding = 2}});
  auto bound = device->load(shared(plan), [](const PlanBinding& binding) {
    return binding.name == "none" ? Tensor::empty(f32(Shape(0, 4))) : lookup_on_host(binding);
  });
  ASSERT_TRUE(bound) << bound.error().message();
  EXPECT_THAT(values(bound->output("w_row")), ElementsAre(0, 1));
  EXPECT_EQ(bound->output("nothing")->spec(), f32(Shape(0, 4)));
}

TEST(Executable, PlansThatPointOutsideTheirMemoryAreRefused) {
  const auto device = test::cpu();
  const auto refuses = [&](auto break_plan, const std::string& text) {
    Plan plan = test::matmul_relu_plan();
    break_plan(plan);
    expect_error(device->load(shared(plan), lookup_on_host), ErrorCode::kInternal, text);
  };
  refuses([](Plan& plan) { plan.steps[0].waits = {1}; },
          "it waits for step 2, which does not come before it");
  refuses([](Plan& plan) { plan.arena_bytes = 64; },
          "plan step 1 of 2, MatMul 'layer': the workspace takes bytes [128, 128 + 65536) of 64");
  refuses([](Plan& plan) { plan.steps[1].outputs[0].offset = -4; },
          "plan step 2 of 2, Unary{relu} 'layer.relu': an operand in the arena");
  refuses([](Plan& plan) { plan.steps[1].outputs[0].offset = plan.arena_bytes - 4; },
          "an operand in the arena");
  refuses([](Plan& plan) { plan.steps[0].inputs[1].binding = 2; }, "names binding 2 of 2");
  refuses([](Plan& plan) { plan.steps[0].inputs[1].offset = 4; }, "an operand in parameter 'w'");
  refuses([](Plan& plan) { plan.steps[0].outputs[0].binding = 0; },
          "input 'x' is written but not declared so");
  refuses([](Plan& plan) { plan.steps[0].workspace_bytes = -1; }, "the workspace");
  refuses([](Plan& plan) { plan.outputs[0].operand.binding = 7; }, "plan output 'y'");
  refuses(
      [](Plan& plan) {
        plan.steps[1] = {.op = Fill{},
                         .inputs = {{.spec = f32(Shape(2, 3)), .binding = 0}},
                         .outputs = {},
                         .label = "fill"};
      },
      "'fill': input 'x' is written but not declared so");
}

// A wide product splits its long sums over threads, each in a piece of the workspace.
Result<Plan> wide_product(const Device& device) {
  Graph graph;
  VOLTA_TRY(const ValueId a, graph.input("a", f32(Shape(512, 4096))));
  VOLTA_TRY(const ValueId b, graph.parameter("b", f32(Shape(4096, 1024))));
  VOLTA_TRY(const ValueId c, graph.add_one(MatMul{}, {a, b}));
  VOLTA_TRY(graph.output("c", c));
  return make_plan(graph, device);
}

Result<Tensor> zeros(const PlanBinding& binding) { return Tensor::zeros(binding.spec); }

TEST(Executable, PlansForFewerThreadsAreRefused) {
  const auto few = test::cpu(1);
  const auto many = test::cpu(16);
  auto plan = wide_product(*few);
  ASSERT_TRUE(plan) << plan.error().message();
  expect_error(many->load(shared(*plan), zeros), ErrorCode::kInvalidArgument,
               "made for another device or number of threads");
  EXPECT_TRUE(few->load(shared(*std::move(plan)), zeros));
  // More room than needed does no harm.
  auto roomy = wide_product(*many);
  ASSERT_TRUE(roomy);
  EXPECT_TRUE(few->load(shared(*std::move(roomy)), zeros));
}

TEST(Executable, DevicesWithoutItsKernelsAreRefused) {
  test::FaultyDevice device(test::cpu());
  device.supports_all = false;
  expect_error(test::bind_matmul_relu(device), ErrorCode::kInvalidArgument,
               "plan step 1 of 2, MatMul 'layer': device 'cpu' has no kernel for it");
}

// Notes what it hears, and fails where it is told to.
class Notes final : public StepListener {
 public:
  std::string heard;
  std::string fail_at;

  void run_begins() override { heard += "run "; }
  Status step_begins(std::size_t step, const OpCall& call) override {
    return note(fmt::format("<{}{} ", step, call.label));
  }
  Status step_ends(std::size_t step, const OpCall& call) override {
    // The results are there, and the memory is the plan's.
    EXPECT_EQ(call.outputs[0].as<const float>()[3], 1.0f);
    return note(fmt::format("{}{}> ", step, call.label));
  }
  void run_ends(std::size_t steps, bool complete) override {
    heard += fmt::format("end {} {}", steps, complete);
  }

 private:
  Status note(const std::string& text) {
    heard += text;
    if (text != fail_at) return {};
    return fail(ErrorCode::kNonFinite, "heard enough");
  }
};

TEST(Executable, ListenersHearEveryStep) {
  const auto device = test::cpu();
  auto bound = test::bind_matmul_relu(*device);
  ASSERT_TRUE(bound);
  Tensor x = *bound->binding("x");
  ASSERT_TRUE(x.write<float>(std::array{1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f}));
  const auto notes = std::make_shared<Notes>();
  const auto second = std::make_shared<Notes>();
  bound->add_listener(notes);
  bound->add_listener(nullptr);  // Nobody.
  bound->add_listener(second);
  ASSERT_TRUE(bound->run());
  const std::string all = "run <0layer 0layer> <1layer.relu 1layer.relu> end 2 true";
  EXPECT_EQ(notes->heard, all);
  EXPECT_EQ(second->heard, all);
  EXPECT_THAT(values(bound->output("y")), ElementsAre(0, 1, 0, 1));

  second->fail_at = "0layer> ";
  notes->heard.clear();
  expect_error(bound->run(), ErrorCode::kNonFinite, "step 1 of 2: heard enough");
  EXPECT_EQ(notes->heard, "run <0layer 0layer> end 0 false");
  second->fail_at = "<1layer.relu ";
  notes->heard.clear();
  expect_error(bound->run(), ErrorCode::kNonFinite, "step 2 of 2: heard enough");
  EXPECT_EQ(notes->heard, "run <0layer 0layer> <1layer.relu end 1 false");

  bound->remove_listener(*second);
  notes->heard.clear();
  EXPECT_TRUE(bound->run());
  EXPECT_EQ(notes->heard, all);
  bound->remove_listener(*notes);
  notes->heard.clear();
  EXPECT_TRUE(bound->run());
  EXPECT_EQ(notes->heard, "");
}

// A proxy of a proxy: both hear what is loaded through them, and the same bits come out.
TEST(Executable, RunsUnderSeveralProxies) {
  const auto device = test::cpu();
  const auto profiling = ProfilingDevice::create(device);
  ASSERT_TRUE(profiling);
  const auto checking = CheckingDevice::create(*profiling);
  ASSERT_TRUE(checking);
  auto bound = test::bind_matmul_relu(**checking);
  ASSERT_TRUE(bound) << bound.error().message();
  EXPECT_TRUE(bound->run());
  EXPECT_THAT(values(bound->output("y")), ElementsAre(0, 1, 0, 1));
  EXPECT_EQ((*profiling)->profile().executions, 1);
  Tensor x = *bound->binding("x");
  ASSERT_TRUE(x.write<float>(std::array{NAN, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f}));
  expect_error(bound->run(), ErrorCode::kNonFinite, "step 1 of 2: MatMul 'layer': output 0");
  EXPECT_EQ((*profiling)->profile().executions, 1);
}

// Wherever the device's memory runs out while a plan is loaded: an error, and nothing stays behind.
TEST(Executable, MemoryThatRunsOutIsAnError) {
  test::FaultyDevice device(test::cpu(), false);
  auto& memory = device.faulty_memory();
  Plan plan = test::matmul_relu_plan();
  plan.bindings[1].kind = ValueKind::kConstant;
  plan.bindings[1].constant = floats(Shape(3, 2), {1, -1, 0, 1, -1, 0});
  const auto planned = shared(plan);
  const auto keep = [](const PlanBinding&) { return std::nullopt; };
  std::int64_t nth = 1;
  for (;; ++nth) {
    memory.allocation_fuse.arm(nth);
    const auto loaded = device.load(planned, keep);
    memory.allocation_fuse.arm(0);
    if (loaded) break;
    EXPECT_EQ(loaded.error().code(), ErrorCode::kOutOfMemory);
    EXPECT_THAT(loaded.error().message(),
                ::testing::AnyOf(::testing::HasSubstr("the plan's arena"),
                                 ::testing::HasSubstr("constant 'w'"),
                                 ::testing::HasSubstr("the plan's inputs")));
    EXPECT_EQ(memory.live_bytes(), 0);
  }
  EXPECT_EQ(nth, 4);  // The arena, the constant and the inputs.
  EXPECT_EQ(memory.live_bytes(), 0);
}

TEST(Executable, OnlyInputsGoWithoutATensor) {
  const auto device = test::cpu();
  expect_error(device->load(shared(test::matmul_relu_plan()),
                            [](const PlanBinding&) { return std::nullopt; }),
               ErrorCode::kInvalidArgument,
               "binding parameter 'w': the lookup gave no tensor; only inputs can go without");
}

// On the host's own device the block of inputs is the plan's memory itself, and so are the results.
TEST(Executable, TheHostsDeviceCopiesNothing) {
  const auto device = test::cpu();
  auto loaded = device->load(shared(test::matmul_relu_plan()),
                             [](const PlanBinding& binding) -> Result<std::optional<Tensor>> {
                               if (binding.name == "x") return std::nullopt;
                               return lookup_on_host(binding);
                             });
  ASSERT_TRUE(loaded) << loaded.error().message();
  Tensor x = *loaded->binding("x");
  EXPECT_EQ(x.view().data, loaded->calls()[0].inputs[0].data);
  const Tensor y = *loaded->result("y");
  EXPECT_EQ(y.view().data, loaded->output("y")->view().data);
  ASSERT_TRUE(x.write<float>(std::array{1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f}));
  ASSERT_TRUE(loaded->run());
  ASSERT_TRUE(loaded->fetch());
  EXPECT_THAT(values(y), ElementsAre(0, 1, 0, 1));
  Plan bound_output = test::matmul_relu_plan();
  bound_output.outputs.push_back({"w", {.spec = f32(Shape(3, 2)), .binding = 1}});
  auto other = device->load(shared(bound_output), lookup_on_host);
  ASSERT_TRUE(other);
  expect_error(other->result("w"), ErrorCode::kInvalidArgument, "is the bound tensor 'w'");
}

// Of the plan's outputs only the wanted ones are copied; the arena still has the others.
TEST(Executable, ResultsCanBeLimited) {
  const auto device = test::cpu();
  Plan plan = test::matmul_relu_plan();
  plan.outputs.push_back({.name = "product", .operand = {.spec = f32(Shape(2, 2))}});
  const auto with_gpu_memory = std::make_shared<test::AsyncDevice>(device);
  const auto load = [&] {
    return with_gpu_memory->load(shared(plan), [&](const PlanBinding& binding) {
      return test::matmul_relu_tensor(binding, with_gpu_memory->memory());
    });
  };
  auto limited = load();
  ASSERT_TRUE(limited) << limited.error().message();
  constexpr std::array<std::string_view, 1> kWanted = {"y"}, kUnknown = {"z"};
  expect_error(limited->limit_results(kUnknown), ErrorCode::kNotFound, "it has: y, product");
  ASSERT_TRUE(limited->limit_results(kWanted));
  ASSERT_TRUE(limited->run());
  ASSERT_TRUE(limited->fetch());
  EXPECT_THAT(values(limited->result("y")), ElementsAre(0, 1, 0, 1));
  expect_error(limited->result("product"), ErrorCode::kInvalidArgument, "'product' is not among");
  EXPECT_THAT(values(limited->output("product")), ElementsAre(-2, 1, -2, 1));
}

// An executable outlives the last pointer of others to its device.
TEST(Executable, KeepsItsDevice) {
  auto device = test::cpu();
  auto bound = test::bind_matmul_relu(*device);
  ASSERT_TRUE(bound);
  device.reset();
  EXPECT_TRUE(bound->run());
  EXPECT_TRUE(bound->synchronize());
  EXPECT_THAT(values(bound->output("y")), ElementsAre(0, 1, 0, 1));
}

TEST(Executable, WrittenMemoryBelongsToOneBinding) {
  const auto device = test::cpu();
  Graph graph;
  const ValueId sum = *graph.state("sum", f32(Shape(7)));
  const ValueId x = *graph.input("x", f32(Shape(7)));
  const ValueId y = *graph.input("y", f32(Shape(7)));
  const ValueId both = *graph.add_one(Binary{BinaryKind::kAdd}, {x, y});
  ASSERT_TRUE(graph.add(Accumulate{}, std::vector{sum, both}));
  auto plan = make_plan(graph, *device);
  ASSERT_TRUE(plan) << plan.error().message();
  const auto planned = shared(*std::move(plan));
  const Tensor block = *Tensor::zeros(f32(Shape(16)));
  const auto bind = [&](std::int64_t sum_at, std::int64_t x_at, std::int64_t y_at) {
    return device->load(planned, [&](const PlanBinding& binding) {
      const std::int64_t at = binding.name == "sum" ? sum_at : binding.name == "x" ? x_at : y_at;
      return block.slice(at, at + 7);
    });
  };
  expect_error(bind(1, 0, 9), ErrorCode::kInvalidArgument,
               "binding state 'sum': the plan writes it, but its tensor shares memory with that of "
               "input 'x'");
  expect_error(bind(0, 6, 7), ErrorCode::kInvalidArgument, "that of input 'x'");
  expect_error(bind(3, 3, 3), ErrorCode::kInvalidArgument, "binding state 'sum'");
  expect_error(bind(8, 0, 2), ErrorCode::kInvalidArgument, "that of input 'y'");
  EXPECT_TRUE(bind(0, 7, 7));  // What is only read may be the same.
  EXPECT_TRUE(bind(9, 0, 2));
}

}  // namespace
}  // namespace volta
