// Evaluates expressions and calls macros.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "text/jinja/operators.h"
#include "text/jinja/run.h"

namespace volta::jinja {

Result<Value> Run::evaluate(NodeId id) {
  const Level level(level_);
  const Node& node = ast_[id];
  VOLTA_TRY(at(node, enter()));
  switch (node.kind) {
    case NodeKind::kConstant:
      return node.value;
    case NodeKind::kName:
      return at(node, look_up(node.name));
    case NodeKind::kList:
    case NodeKind::kTuple: {
      VOLTA_TRY(auto items, evaluate_all(node.children));
      return at(node, make_sequence(
                          budget_,
                          node.kind == NodeKind::kList ? SequenceKind::kList : SequenceKind::kTuple,
                          std::move(items)));
    }
    case NodeKind::kDict:
      return evaluate_dict(node);
    case NodeKind::kAttribute:
      return evaluate_attribute(node);
    case NodeKind::kItem:
      return evaluate_item(node);
    case NodeKind::kCall:
      return evaluate_call(node);
    case NodeKind::kFilter:
    case NodeKind::kTest:
      return evaluate_use(node);
    case NodeKind::kCondition:
      return evaluate_condition(node);
    default:
      return evaluate_operator(node);
  }
}

Result<std::vector<Value>> Run::evaluate_all(std::span<const NodeId> nodes) {
  std::vector<Value> values;
  values.reserve(nodes.size());
  for (const NodeId id : nodes) {
    VOLTA_TRY(Value value, evaluate(id));
    values.push_back(std::move(value));
  }
  return values;
}

Result<Value> Run::evaluate_dict(const Node& node) {
  VOLTA_TRY(auto values, evaluate_all(node.children));
  std::vector<std::pair<Value, Value>> members;
  for (std::size_t i = 0; i + 1 < values.size(); i += 2) {
    members.emplace_back(std::move(values[i]), std::move(values[i + 1]));
  }
  return at(node, make_dict(budget_, std::move(members)));
}

Result<Value> Run::evaluate_attribute(const Node& node) {
  VOLTA_TRY(const Value object, evaluate(node.children.front()));
  if (LoopState* loop = object.if_loop()) return at(node, loop_member(*loop, node.name));
  return at(node, get_attribute(budget_, object, node.name));
}

Result<Value> Run::evaluate_item(const Node& node) {
  VOLTA_TRY(const Value object, evaluate(node.children.front()));
  const Node& index = ast_[node.children[1]];
  if (index.kind != NodeKind::kSlice) {
    VOLTA_TRY(const Value key, evaluate(node.children[1]));
    return at(node, get_item(budget_, object, key));
  }
  std::vector<Value> parts(3, Value(None{}));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (index.children[i] == kNone) continue;
    VOLTA_TRY(parts[i], evaluate(index.children[i]));
  }
  return at(node, get_slice(budget_, object, parts[0], parts[1], parts[2]));
}

// Evaluates the children after the first one as arguments. The last ones have names.
Result<Arguments> Run::evaluate_arguments(const Node& node) {
  VOLTA_TRY(auto values, evaluate_all(std::span(node.children).subspan(1)));
  Arguments arguments;
  const std::size_t positional = values.size() - node.names.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i < positional) {
      arguments.positional.push_back(std::move(values[i]));
    } else {
      arguments.named.emplace_back(node.names[i - positional], std::move(values[i]));
    }
  }
  return arguments;
}

Result<Value> Run::evaluate_call(const Node& node) {
  VOLTA_TRY(const Value callee, evaluate(node.children.front()));
  VOLTA_TRY(const Arguments arguments, evaluate_arguments(node));
  const Function* function = callee.if_function();
  if (function == nullptr) return at<Value>(node, no_function(node, callee));
  if (function->builtin == nullptr) return call_macro(node, ast_[function->node], arguments);
  return at(node, call_function(budget_, *function, arguments, environment_.now));
}

std::unexpected<Error> Run::no_function(const Node& call, const Value& callee) const {
  const Node& name = ast_[call.children.front()];
  if (!callee.is_undefined()) {
    return type_error(fmt::format("a value of type {} is no function", callee.type_name()));
  }
  if (name.kind != NodeKind::kAttribute) return undefined_error(callee);
  return unsupported(fmt::format("the method '{}' is not supported: {}", name.name,
                                 undefined_error(callee).error().message()));
}

Result<Value> Run::call_macro(const Node& call, const Node& macro, const Arguments& arguments) {
  Scope scope;
  VOLTA_TRY(at(call, bind_macro(macro, arguments, scope)));
  scopes_.push_back(std::move(scope));
  const std::size_t base = std::exchange(base_, scopes_.size() - 1);
  // A default value can use the parameters before it.
  const std::size_t with_default = macro.children.size() - 1;
  for (std::size_t i = 0; i < macro.names.size(); ++i) {
    if (find_in(scopes_.back(), macro.names[i]) != nullptr) continue;
    const std::size_t first = macro.names.size() - with_default;
    Value value = Value::undefined(fmt::format("parameter '{}' was not given", macro.names[i]));
    if (i >= first) {
      VOLTA_TRY(value, evaluate(macro.children[i - first + 1]));
    }
    set(macro.names[i], std::move(value));
  }
  VOLTA_TRY(Value text, capture(macro.children.front()));
  base_ = base;
  scopes_.pop_back();
  return text;
}

Status Run::bind_macro(const Node& macro, const Arguments& arguments, Scope& scope) {
  if (arguments.positional.size() > macro.names.size()) {
    return type_error(
        fmt::format("macro '{}' takes {} arguments at most", macro.name, macro.names.size()));
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    scope.emplace_back(macro.names[i], arguments.positional[i]);
  }
  for (const auto& [name, value] : arguments.named) {
    const auto parameter = std::ranges::find(macro.names, name);
    if (parameter == macro.names.end() || find_in(scope, name) != nullptr) {
      return type_error(fmt::format("macro '{}' cannot take the argument '{}'", macro.name, name));
    }
    scope.emplace_back(*parameter, value);
  }
  return {};
}

// Evaluates a filter or a test.
Result<Value> Run::evaluate_use(const Node& node) {
  VOLTA_TRY(const Value input, evaluate(node.children.front()));
  VOLTA_TRY(const Arguments arguments, evaluate_arguments(node));
  const auto apply = node.kind == NodeKind::kFilter ? apply_filter : apply_test;
  return at(node, apply(budget_, node.name, input, arguments));
}

Result<Value> Run::evaluate_condition(const Node& node) {
  VOLTA_TRY(const Value test, evaluate(node.children[0]));
  if (truth(test)) return evaluate(node.children[1]);
  if (node.children[2] != kNone) return evaluate(node.children[2]);
  return Value::undefined(
      fmt::format("the inline if of line {} has no else, and its condition is false", node.line));
}

Result<Value> Run::evaluate_operator(const Node& node) {
  if (node.kind == NodeKind::kConcat) return evaluate_concat(node);
  if (node.kind == NodeKind::kAnd || node.kind == NodeKind::kOr) {
    Value value;
    for (const NodeId child : node.children) {
      VOLTA_TRY(value, evaluate(child));
      if (truth(value) == (node.kind == NodeKind::kOr)) break;
    }
    return value;
  }
  VOLTA_TRY(const Value first, evaluate(node.children[0]));
  if (node.kind == NodeKind::kNot) return Value(!truth(first));
  if (node.kind == NodeKind::kNegate) {
    return at(node, calculate(budget_, Operator::kSubtract, Value(std::int64_t{0}), first));
  }
  VOLTA_TRY(const Value second, evaluate(node.children[1]));
  if (node.kind == NodeKind::kBinary) {
    return at(node, calculate(budget_, node.op, first, second));
  }
  VOLTA_TRY(const bool holds, at(node, compare_with(budget_, node.op, first, second)));
  return Value(holds);
}

Result<Value> Run::evaluate_concat(const Node& node) {
  VOLTA_TRY(const auto values, evaluate_all(node.children));
  TextBuilder out(budget_);
  for (const Value& value : values) VOLTA_TRY(at(node, print(out, value)));
  return at(node, out.finish());
}

}  // namespace volta::jinja
