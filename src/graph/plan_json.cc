// Writes plans as JSON and reads them. The reader handles untrusted text: see plan_from_json().
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "graph/plan.h"
#include "ops/op_json.h"
#include "ops/rules.h"

namespace volta {
namespace {

/// Writes the members of an operand: its place and its spec.
void write_operand(JsonWriter& json, const Plan& plan, const PlanOperand& operand) {
  if (operand.binding >= 0) {
    json.field("binding", plan.bindings[static_cast<std::size_t>(operand.binding)].name);
  }
  json.field("offset", operand.offset).field("bytes", operand.spec.bytes());
  write_spec(json, operand.spec);
}

void write_operands(JsonWriter& json, const Plan& plan, std::string_view key,
                    const std::vector<PlanOperand>& operands) {
  json.key(key).begin_array();
  for (const PlanOperand& operand : operands) {
    json.begin_object();
    write_operand(json, plan, operand);
    json.end_object();
  }
  json.end_array();
}

void write_step(JsonWriter& json, const Plan& plan, const PlanStep& step) {
  const OpCost work = step_cost(step);
  json.begin_object();
  write_op(json, step.op);
  json.field("attributes", to_string(step.op))
      .field("label", step.label)
      .field("node", step.node)
      .field("flops", work.flops)
      .field("bytes", work.bytes);
  write_operands(json, plan, "inputs", step.inputs);
  write_operands(json, plan, "outputs", step.outputs);
  json.field("workspace_offset", step.workspace_offset)
      .field("workspace_bytes", step.workspace_bytes);
  if (step.stream != 0) json.field("stream", step.stream);
  if (!step.waits.empty()) {
    json.key("waits").begin_array();
    for (const std::size_t wait : step.waits) json.value(wait);
    json.end_array();
  }
  json.end_object();
}

/// Writes the bytes of a constant, which can be read because constants are in host memory.
void write_data(JsonWriter& json, const Tensor& constant) {
  std::string text;
  if (const auto bytes = constant.host_bytes()) {
    text.reserve(bytes->size() * 2);
    for (const std::byte byte : *bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  }
  json.field("data", text);
}

std::unexpected<Error> invalid(const JsonRef& json, std::string_view problem) {
  return fail(ErrorCode::kInvalidFile, fmt::format("{}: {}", json.path(), problem));
}

std::optional<unsigned> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
  return std::nullopt;
}

/// Reads the bytes of a tensor. The length of the text is checked before anything is allocated.
Result<Tensor> read_data(const JsonRef& json, const TensorSpec& spec) {
  const std::string* text = json.node().if_string();
  const std::size_t digits = static_cast<std::size_t>(spec.bytes()) * 2;
  if (text == nullptr || text->size() != digits) {
    return invalid(json, fmt::format("expected {} hexadecimal digits, the bytes of {}", digits,
                                     to_string(spec)));
  }
  VOLTA_TRY(Tensor tensor, Tensor::empty(spec));
  VOLTA_TRY(const std::span<std::byte> bytes, tensor.host_bytes());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto high = hex_digit((*text)[2 * i]);
    const auto low = hex_digit((*text)[2 * i + 1]);
    if (!high || !low) return invalid(json, "expected hexadecimal digits, 0 to 9 and a to f");
    bytes[i] = static_cast<std::byte>(*high * 16 + *low);
  }
  return tensor;
}

class PlanReader {
 public:
  Result<Plan> read(const JsonRef& json) {
    VOLTA_TRY(plan_.arena_bytes, json.get_int("arena_bytes", 0, kMaxTensorBytes));
    VOLTA_TRY(plan_.arena_bytes_unshared, json.get_int("arena_bytes_unshared", 0));
    VOLTA_TRY(read_each(json, "bindings", plan_.bindings, &PlanReader::read_binding));
    VOLTA_TRY(read_each(json, "steps", plan_.steps, &PlanReader::read_step));
    VOLTA_TRY(read_each(json, "outputs", plan_.outputs, &PlanReader::read_output));
    return std::move(plan_);
  }

 private:
  /// Applies `read_one` to each element of the array `key` and appends the results to `list`.
  template <typename T>
  Status read_each(const JsonRef& json, std::string_view key, std::vector<T>& list,
                   Result<T> (PlanReader::*read_one)(const JsonRef&)) {
    VOLTA_TRY(const JsonRef array, json.member(key));
    VOLTA_TRY(const std::vector<JsonRef> elements, array.elements());
    for (const JsonRef& element : elements) {
      VOLTA_TRY(T one, (this->*read_one)(element));
      list.push_back(std::move(one));
    }
    return {};
  }

  Result<PlanBinding> read_binding(const JsonRef& json) {
    PlanBinding binding;
    VOLTA_TRY(binding.name, json.get_string("name"));
    const auto number = static_cast<std::int32_t>(plan_.bindings.size());
    if (binding.name.empty()) return invalid(json, "a binding has no name");
    if (!bindings_.emplace(binding.name, number).second) {
      return invalid(json, fmt::format("another binding is named '{}'", binding.name));
    }
    VOLTA_TRY(const std::string kind, json.get_string("kind"));
    VOLTA_TRY(binding.kind, read_kind(json, kind));
    VOLTA_TRY(binding.spec, read_spec(json));
    VOLTA_TRY(binding.written, json.get_bool("written"));
    if (binding.kind == ValueKind::kConstant) {
      VOLTA_TRY(const JsonRef data, json.member("data"));
      VOLTA_TRY(binding.constant, read_data(data, binding.spec));
    }
    return binding;
  }

  static Result<ValueKind> read_kind(const JsonRef& json, std::string_view text) {
    for (const ValueKind kind :
         {ValueKind::kInput, ValueKind::kParameter, ValueKind::kState, ValueKind::kConstant}) {
      if (kind_name(kind) == text) return kind;
    }
    return invalid(
        json, fmt::format("kind is '{}'; it must be input, parameter, state or constant", text));
  }

  Result<PlanOperand> read_operand(const JsonRef& json) {
    PlanOperand operand;
    VOLTA_TRY(operand.spec, read_spec(json));
    VOLTA_TRY(operand.offset, json.get_int("offset", 0, kMaxTensorBytes));
    VOLTA_TRY(const auto binding, json.optional_member("binding"));
    std::int64_t room = plan_.arena_bytes;
    std::string place = "the arena";
    if (binding) {
      VOLTA_TRY(const std::string name, binding->as_string());
      const auto found = bindings_.find(name);
      if (found == bindings_.end()) {
        return invalid(*binding, fmt::format("there is no binding '{}'", name));
      }
      operand.binding = found->second;
      room = plan_.bindings[static_cast<std::size_t>(operand.binding)].spec.bytes();
      place = fmt::format("binding '{}'", name);
    }
    VOLTA_TRY(check_window(json, operand.offset, operand.spec.bytes(), room, place));
    return operand;
  }

  static Status check_window(const JsonRef& json, std::int64_t offset, std::int64_t bytes,
                             std::int64_t room, std::string_view place) {
    if (offset <= room && bytes <= room - offset) return {};
    return invalid(json, fmt::format("{} bytes at offset {} do not fit into {}, {} bytes", bytes,
                                     offset, place, room));
  }

  Result<PlanStep> read_step(const JsonRef& json) {
    PlanStep step;
    VOLTA_TRY(step.op, read_op(json));
    VOLTA_TRY(step.label, json.get_string("label"));
    VOLTA_TRY(const std::int64_t node, json.get_int("node", 0));
    step.node = static_cast<std::size_t>(node);
    VOLTA_TRY(read_each(json, "inputs", step.inputs, &PlanReader::read_operand));
    VOLTA_TRY(read_each(json, "outputs", step.outputs, &PlanReader::read_operand));
    VOLTA_TRY(step.workspace_offset, json.get_int("workspace_offset", 0, kMaxTensorBytes));
    VOLTA_TRY(step.workspace_bytes, json.get_int("workspace_bytes", 0, kMaxTensorBytes));
    VOLTA_TRY(check_window(json, step.workspace_offset, step.workspace_bytes, plan_.arena_bytes,
                           "the arena"));
    VOLTA_TRY(check_step(json, step));
    VOLTA_TRY(read_order(json, step));
    return step;
  }

  /// Reads the stream of the step and the steps that it waits for. Both are missing if the plan has
  /// a single stream.
  Status read_order(const JsonRef& json, PlanStep& step) const {
    VOLTA_TRY(const std::int64_t stream,
              json.get_int_or("stream", 0, 0, std::numeric_limits<std::int32_t>::max()));
    step.stream = static_cast<std::int32_t>(stream);
    VOLTA_TRY(const auto waits, json.optional_member("waits"));
    if (!waits) return {};
    VOLTA_TRY(const std::vector<JsonRef> elements, waits->elements());
    for (const JsonRef& element : elements) {
      VOLTA_TRY(const std::int64_t wait, element.as_int(0));
      if (wait >= std::ssize(plan_.steps)) {
        return invalid(element, fmt::format("step {} waits for step {}, which does not come before",
                                            plan_.steps.size(), wait));
      }
      step.waits.push_back(static_cast<std::size_t>(wait));
    }
    return {};
  }

  /// Checks that the op accepts its inputs, has these outputs, and writes only bindings that are
  /// marked as written.
  Status check_step(const JsonRef& json, const PlanStep& step) const {
    std::vector<TensorSpec> inputs;
    for (const PlanOperand& operand : step.inputs) inputs.push_back(operand.spec);
    const auto outputs = infer(step.op, inputs);
    if (!outputs) return invalid(json, outputs.error().message());
    if (outputs->size() != step.outputs.size()) {
      return invalid(json, fmt::format("{} has {} outputs, not {}", to_string(step.op),
                                       outputs->size(), step.outputs.size()));
    }
    for (std::size_t i = 0; i < outputs->size(); ++i) {
      if (step.outputs[i].spec == (*outputs)[i]) continue;
      return invalid(json, fmt::format("output {} of {} is {}, not {}", i, to_string(step.op),
                                       to_string((*outputs)[i]), to_string(step.outputs[i].spec)));
    }
    const std::uint32_t written = writes(step.op, step.inputs.size());
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      const std::int32_t binding = step.inputs[i].binding;
      if (!writes_input(written, i)) continue;
      if (binding >= 0 && plan_.bindings[static_cast<std::size_t>(binding)].written) continue;
      return invalid(json,
                     fmt::format("{} writes its input {}, which is no binding that is written",
                                 to_string(step.op), i));
    }
    return {};
  }

  Result<PlanOutput> read_output(const JsonRef& json) {
    PlanOutput output;
    VOLTA_TRY(output.name, json.get_string("name"));
    VOLTA_TRY(output.operand, read_operand(json));
    return output;
  }

  Plan plan_;
  std::map<std::string, std::int32_t, std::less<>> bindings_;  ///< Indices by name.
};

}  // namespace

std::string to_json(const Plan& plan) {
  JsonWriter json;
  json.begin_object()
      .field("arena_bytes", plan.arena_bytes)
      .field("arena_bytes_unshared", plan.arena_bytes_unshared);
  json.key("bindings").begin_array();
  for (const PlanBinding& binding : plan.bindings) {
    json.begin_object().field("name", binding.name).field("kind", kind_name(binding.kind));
    write_spec(json, binding.spec);
    json.field("bytes", binding.spec.bytes()).field("written", binding.written);
    if (binding.kind == ValueKind::kConstant) write_data(json, binding.constant);
    json.end_object();
  }
  json.end_array().key("steps").begin_array();
  for (const PlanStep& step : plan.steps) write_step(json, plan, step);
  json.end_array().key("outputs").begin_array();
  for (const PlanOutput& output : plan.outputs) {
    json.begin_object().field("name", output.name);
    write_operand(json, plan, output.operand);
    json.end_object();
  }
  json.end_array().end_object();
  return std::move(json).take();
}

Result<Plan> plan_from_json(std::string_view text, std::string_view what) {
  VOLTA_TRY(const JsonValue document, parse_json(text, what));
  return PlanReader().read(JsonRef(document, what));
}

}  // namespace volta
