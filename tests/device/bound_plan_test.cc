// BoundPlan: addresses, lookups and their refusals, plans that point outside their memory, moves.
#include <array>

#include "device/checking_device.h"
#include "device/helpers.h"
#include "device/profiling_device.h"
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

TEST(BoundPlan, RunsAndGivesOutputsAndBindings) {
  const auto device = test::cpu();
  auto bound = test::bind_matmul_relu(*device);
  ASSERT_TRUE(bound) << bound.error().message();
  EXPECT_EQ(bound->plan().steps.size(), 2u);
  EXPECT_EQ(bound->shared_plan().get(), &bound->plan());
  ASSERT_EQ(bound->calls().size(), 2u);
  EXPECT_EQ(bound->calls()[0].label, "layer");
  EXPECT_EQ(bound->calls()[0].workspace.size(), std::size_t{1} << 16);
  ASSERT_TRUE(device->execute(*bound));
  EXPECT_THAT(values(bound->output("y")), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(values(bound->binding("w")), ElementsAre(1, -1, 0, 1, -1, 0));

  // A new input, written through the binding, is what the next run sees.
  Tensor x = *bound->binding("x");
  ASSERT_TRUE(x.write<float>(std::array{3.0f, 2.0f, 1.0f, 0.0f, 0.0f, 0.0f}));
  ASSERT_TRUE(device->execute(*bound));
  EXPECT_THAT(values(bound->output("y")), ElementsAre(2, 0, 0, 0));
}

TEST(BoundPlan, UnknownNamesListTheKnownOnes) {
  const auto device = test::cpu();
  const auto bound = test::bind_matmul_relu(*device);
  ASSERT_TRUE(bound);
  expect_error(bound->binding("v"), ErrorCode::kNotFound, "no 'v'; it binds: x, w");
  expect_error(bound->output("z"), ErrorCode::kNotFound, "no output 'z'; it has: y");
}

TEST(BoundPlan, MovesKeepEveryAddress) {
  const auto device = test::cpu();
  auto first = test::bind_matmul_relu(*device);
  ASSERT_TRUE(first);
  const void* address = first->calls()[0].inputs[0].data;
  BoundPlan second = *std::move(first);
  auto other = test::bind_matmul_relu(*device);
  ASSERT_TRUE(other);
  *other = std::move(second);
  EXPECT_EQ(other->calls()[0].inputs[0].data, address);
  ASSERT_TRUE(device->execute(*other));
  EXPECT_THAT(values(other->output("y")), ElementsAre(0, 1, 0, 1));
}

TEST(BoundPlan, KeepsPlanAndTensorsAlive) {
  const auto device = test::cpu();
  std::optional<BoundPlan> bound;
  {
    auto made = test::bind_matmul_relu(*device);
    ASSERT_TRUE(made);
    bound = *std::move(made);
  }
  ASSERT_TRUE(device->execute(*bound));
  const Tensor y = *bound->output("y");
  bound.reset();
  EXPECT_THAT(values(y), ElementsAre(0, 1, 0, 1));  // The arena lives with its window.
}

TEST(BoundPlan, LookupErrorsNameTheBinding) {
  const auto device = test::cpu();
  const auto plan = shared(test::matmul_relu_plan());
  expect_error(BoundPlan::bind(nullptr, *device, lookup_on_host), ErrorCode::kInvalidArgument,
               "no plan");
  expect_error(BoundPlan::bind(plan, *device, nullptr), ErrorCode::kInvalidArgument,
               "binding input 'x': no lookup was given");
  expect_error(BoundPlan::bind(plan, *device,
                               [](const PlanBinding& binding) -> Result<Tensor> {
                                 if (binding.name == "x") return lookup_on_host(binding);
                                 return fail(ErrorCode::kNotFound, "not in the file");
                               }),
               ErrorCode::kNotFound, "binding parameter 'w': not in the file");
  expect_error(
      BoundPlan::bind(plan, *device, [](const PlanBinding&) -> Result<Tensor> { return Tensor(); }),
      ErrorCode::kInvalidArgument,
      "binding input 'x': the plan needs f32[2, 3], but the lookup gave f32[0]");
}

TEST(BoundPlan, MemoryMustBeTheDevices) {
  const auto cpu = test::cpu();
  test::FaultyDevice gpu(cpu, false);
  const auto plan = shared(test::matmul_relu_plan());
  expect_error(BoundPlan::bind(plan, gpu, lookup_on_host), ErrorCode::kInvalidArgument,
               "its tensor (f32[2, 3]) is not in the memory of device 'cpu'");
  const auto on_gpu = [&](const PlanBinding& binding) {
    return test::matmul_relu_tensor(binding, gpu.memory());
  };
  expect_error(BoundPlan::bind(plan, *cpu, on_gpu), ErrorCode::kInvalidArgument, "copy it there");
  auto bound = BoundPlan::bind(plan, gpu, on_gpu);
  ASSERT_TRUE(bound) << bound.error().message();
  ASSERT_TRUE(gpu.execute(*bound));
  EXPECT_THAT(values(bound->output("y")), ElementsAre(0, 1, 0, 1));
}

TEST(BoundPlan, ForeignHostMemoryIsReadButNotWritten) {
  const auto cpu = test::cpu();
  const auto foreign = std::make_shared<test::FaultyMemory>(true);
  const auto lookup = [&](const PlanBinding& binding) {
    return test::matmul_relu_tensor(binding, foreign);
  };
  Plan plan = test::matmul_relu_plan();
  EXPECT_TRUE(BoundPlan::bind(shared(plan), *cpu, lookup));
  plan.bindings[0].written = true;
  expect_error(BoundPlan::bind(shared(plan), *cpu, lookup), ErrorCode::kInvalidArgument,
               "which would write to it");
}

TEST(BoundPlan, ConstantsAreCopiedToTheDevice) {
  const auto cpu = test::cpu();
  test::FaultyDevice gpu(cpu, false);
  Plan plan = test::matmul_relu_plan();
  plan.bindings[1].kind = ValueKind::kConstant;
  plan.bindings[1].constant = floats(Shape(3, 2), {1, -1, 0, 1, -1, 0});
  for (Device* device : {static_cast<Device*>(cpu.get()), static_cast<Device*>(&gpu)}) {
    auto bound = BoundPlan::bind(shared(plan), *device, [&](const PlanBinding& binding) {
      EXPECT_EQ(binding.name, "x");  // Constants are not looked up.
      return test::matmul_relu_tensor(binding, device->memory());
    });
    ASSERT_TRUE(bound) << bound.error().message();
    EXPECT_EQ(bound->binding("w")->buffer()->owner(), device->memory());
    ASSERT_TRUE(device->execute(*bound));
    EXPECT_THAT(values(bound->output("y")), ElementsAre(0, 1, 0, 1));
  }
  gpu.faulty_memory().copy_fuse.arm(2);  // The first copy is x's.
  expect_error(BoundPlan::bind(shared(plan), gpu,
                               [&](const PlanBinding& binding) {
                                 return test::matmul_relu_tensor(binding, gpu.memory());
                               }),
               ErrorCode::kDevice, "binding constant 'w': injected: copy failed");
}

TEST(BoundPlan, ArenaThatDoesNotFitIsAnError) {
  test::FaultyDevice device(test::cpu());
  device.faulty_memory().allocation_fuse.arm(1);  // The arena comes before any lookup.
  expect_error(test::bind_matmul_relu(device), ErrorCode::kOutOfMemory,
               "allocating the plan's arena: injected");
  EXPECT_EQ(device.faulty_memory().allocations(), 1);
  EXPECT_EQ(device.faulty_memory().live_bytes(), 0);
}

TEST(BoundPlan, OutputsMayBeBindings) {
  const auto device = test::cpu();
  Plan plan = test::matmul_relu_plan();
  // The second row of w, and an output without elements.
  plan.outputs.push_back({"w_row", {.spec = f32(Shape(2)), .binding = 1, .offset = 8}});
  plan.bindings.push_back(
      {.name = "none", .kind = ValueKind::kInput, .spec = f32(Shape(0, 4)), .constant = {}});
  plan.outputs.push_back({"nothing", {.spec = f32(Shape(0, 4)), .binding = 2}});
  auto bound = BoundPlan::bind(shared(plan), *device, [](const PlanBinding& binding) {
    return binding.name == "none" ? Tensor::empty(f32(Shape(0, 4))) : lookup_on_host(binding);
  });
  ASSERT_TRUE(bound) << bound.error().message();
  EXPECT_THAT(values(bound->output("w_row")), ElementsAre(0, 1));
  EXPECT_EQ(bound->output("nothing")->spec(), f32(Shape(0, 4)));
}

TEST(BoundPlan, PlansThatPointOutsideTheirMemoryAreRefused) {
  const auto device = test::cpu();
  const auto refuses = [&](auto break_plan, const std::string& text) {
    Plan plan = test::matmul_relu_plan();
    break_plan(plan);
    expect_error(BoundPlan::bind(shared(plan), *device, lookup_on_host), ErrorCode::kInternal,
                 text);
  };
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

TEST(BoundPlan, PlansForFewerThreadsAreRefused) {
  const auto few = test::cpu(1);
  const auto many = test::cpu(16);
  auto plan = wide_product(*few);
  ASSERT_TRUE(plan) << plan.error().message();
  expect_error(BoundPlan::bind(shared(*plan), *many, zeros), ErrorCode::kInvalidArgument,
               "made for another device or number of threads");
  EXPECT_TRUE(BoundPlan::bind(shared(*std::move(plan)), *few, zeros));
  // More room than needed does no harm.
  auto roomy = wide_product(*many);
  ASSERT_TRUE(roomy);
  EXPECT_TRUE(BoundPlan::bind(shared(*std::move(roomy)), *few, zeros));
}

TEST(BoundPlan, DevicesWithoutItsKernelsAreRefused) {
  test::FaultyDevice device(test::cpu());
  device.supports_all = false;
  expect_error(test::bind_matmul_relu(device), ErrorCode::kInvalidArgument,
               "plan step 1 of 2, MatMul 'layer': device 'cpu' has no kernel for it");
}

TEST(BoundPlan, RunsOnTheDeviceItWasBoundForAndItsProxies) {
  const auto device = test::cpu();
  auto bound = test::bind_matmul_relu(*device);
  ASSERT_TRUE(bound);
  const auto other = test::cpu();
  expect_error(other->execute(*bound), ErrorCode::kInvalidArgument,
               "bound for another device than 'cpu' with 2 threads");
  const auto profiling = ProfilingDevice::create(device);
  const auto checking = CheckingDevice::create(*profiling);
  ASSERT_TRUE(checking);
  EXPECT_TRUE((*profiling)->execute(*bound));
  EXPECT_TRUE((*checking)->execute(*bound));
  const auto profiling_other = ProfilingDevice::create(other);
  ASSERT_TRUE(profiling_other);
  expect_error((*profiling_other)->execute(*bound), ErrorCode::kInvalidArgument, "another device");
}

TEST(BoundPlan, WrittenMemoryBelongsToOneBinding) {
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
    return BoundPlan::bind(planned, *device, [&](const PlanBinding& binding) {
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
