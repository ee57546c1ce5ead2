#include "graph/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "build.h"

namespace volta {
namespace {

using testing::add;
using testing::f32;
using ::testing::HasSubstr;
using testing::message;
using testing::must;

// The parts of a good graph, for a test to break: values x, w, s, c, then y, z of the nodes
// y = Unary(x), z = Binary(y, w), Accumulate(s, z).
struct Parts {
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<GraphOutput> outputs;

  Status verify() const { return verify_parts(values, nodes, outputs); }
};

Parts good_parts() {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(2, 3))));
  const ValueId w = must(graph.parameter("w", f32(Shape(3))));
  const ValueId s = must(graph.state("s", f32(Shape(2, 3))));
  must(graph.constant("c", must(Tensor::zeros(f32(Shape(1))))));
  graph.set_scope("here");
  const ValueId y = add(graph, Unary{}, {x});
  const ValueId z = add(graph, Binary{}, {y, w});
  testing::write(graph, Accumulate{}, {s, z});
  must(graph.output("y", y));
  must(graph.output("z", z));
  return {{graph.values().begin(), graph.values().end()},
          {graph.nodes().begin(), graph.nodes().end()},
          {graph.outputs().begin(), graph.outputs().end()}};
}

TEST(Verify, AcceptsWhatABuilderMakes) { EXPECT_TRUE(good_parts().verify()); }

struct Fault {
  const char* name;
  std::function<void(Parts&)> break_it;
  const char* message;
};

class VerifyFault : public ::testing::TestWithParam<Fault> {};

TEST_P(VerifyFault, IsFound) {
  Parts parts = good_parts();
  GetParam().break_it(parts);
  EXPECT_THAT(message(parts.verify()), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Values, VerifyFault,
    ::testing::Values(
        Fault{"spec", [](Parts& p) { p.values[0].spec.shape = Shape(-2, 3); }, "value 0 'x'"},
        Fault{"duplicate", [](Parts& p) { p.values[1].name = "x"; },
              "value 1 'x': another value has the same name"},
        Fault{"nameless", [](Parts& p) { p.values[2].name = ""; }, "value 2 '': has no name"},
        Fault{"produced", [](Parts& p) { p.values[0].producer = 0; },
              "value 0 'x': is made by a node"},
        Fault{"constant", [](Parts& p) { p.values[3].spec.shape = Shape(2); },
              "value 3 'c': is f32[2], its data f32[1]"},
        Fault{"named", [](Parts& p) { p.values[4].name = "y"; },
              "value 4 'y': an intermediate value has a name"},
        Fault{"orphan", [](Parts& p) { p.values[4].producer = -1; }, "value 4 '': no node makes"},
        Fault{"past", [](Parts& p) { p.values[4].producer = 3; }, "value 4 '': no node makes it"},
        Fault{"unlisted", [](Parts& p) { p.values[4].producer = 1; },
              "value 4 '': its node 1 lists it 0 times"},
        Fault{"twice", [](Parts& p) { p.nodes[0].outputs.push_back(p.nodes[0].outputs[0]); },
              "value 4 '': its node 0 lists it 2 times"}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Nodes, VerifyFault,
    ::testing::Values(
        Fault{"missing_input", [](Parts& p) { p.nodes[1].inputs[1] = ValueId{99}; },
              "node 1 'here' (Binary): input 1 does not exist"},
        Fault{"invalid_input", [](Parts& p) { p.nodes[1].inputs[0] = ValueId{}; },
              "node 1 'here' (Binary): input 0 does not exist"},
        Fault{"order", [](Parts& p) { p.nodes[0].inputs[0] = ValueId{5}; },
              "node 0 'here' (Unary): reads value 5 before node 1 makes it"},
        Fault{"itself", [](Parts& p) { p.nodes[0].inputs[0] = ValueId{4}; },
              "reads value 4 before node 0 makes it"},
        Fault{"infer",
              [](Parts& p) { p.nodes[1].inputs[1] = ValueId{}, p.nodes[1].inputs.pop_back(); },
              "node 1 'here' (Binary): "},
        Fault{"too_few_outputs",
              [](Parts& p) {
                p.nodes[0].op = Norm{NormKind::kRms};
                p.nodes[0].inputs = {ValueId{0}, ValueId{1}};
              },
              "has 1 outputs, should have 2"},
        Fault{"output_spec", [](Parts& p) { p.values[5].spec.shape = Shape(6); },
              "node 1 'here' (Binary): output 0 is f32[6], should be f32[2, 3]"},
        Fault{"missing_output",
              [](Parts& p) {
                p.nodes[2].op = Unary{};
                p.nodes[2].inputs.pop_back();
                p.nodes[2].outputs = {ValueId{42}};
              },
              "output 0 does not exist"},
        Fault{"stolen_output",
              [](Parts& p) {
                p.nodes[2].op = Unary{};
                p.nodes[2].inputs.pop_back();
                p.nodes[2].outputs = {ValueId{5}};
              },
              "output 0 says that node 1 makes it"},
        Fault{"write_input", [](Parts& p) { p.nodes[2].inputs[0] = ValueId{0}; },
              "writes its input 0, which is the input 'x'"},
        Fault{"write_constant", [](Parts& p) { p.nodes[2] = {Fill{}, {ValueId{3}}, {}, ""}; },
              "writes its input 0, which is the constant 'c'"},
        Fault{"write_intermediate", [](Parts& p) { p.nodes[2].inputs[0] = ValueId{4}; },
              "writes its input 0, which is the intermediate ''"},
        Fault{"write_read", [](Parts& p) { p.nodes[2].inputs[1] = ValueId{2}; },
              "writes 's', which is another of its inputs too"}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Outputs, VerifyFault,
    ::testing::Values(
        Fault{"nameless", [](Parts& p) { p.outputs[0].name = ""; }, "an output has no name"},
        Fault{"missing", [](Parts& p) { p.outputs[0].value = ValueId{99}; },
              "output 'y' does not exist"},
        Fault{"duplicate", [](Parts& p) { p.outputs[1].name = "y"; }, "two outputs are named 'y'"}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace volta
