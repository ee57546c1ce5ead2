#include "io/jinja/interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <span>
#include <utility>

#include "io/jinja/arguments.h"
#include "io/jinja/filters.h"
#include "io/jinja/functions.h"
#include "io/jinja/level.h"
#include "io/jinja/operators.h"

namespace volta::jinja {

// One run of a for block. Items are drawn from `items` one at a time, because a filter (`for ...
// if`) may ask for what the body of an earlier round has set.
struct LoopState {
  std::vector<Value> items;
  std::size_t drawn = 0;
  NodeId target = kNone;
  NodeId filter = kNone;
  std::size_t scopes = 0, base = 0;  // Those around the loop, which the filter sees.
  std::int64_t index0 = -1;
  std::int64_t depth0 = 0;
  Value previous, current;
  std::deque<Value> ahead;  // Drawn before their round, in order.
  Value last_changed;
  bool has_changed = false;
};

namespace {

// Calls of evaluate() and run() inside one another: bounded for the stack's sake.
constexpr int kMaxStack = 600;

enum class Flow : std::uint8_t { kNext, kBreak, kContinue };

using Scope = std::vector<std::pair<std::string_view, Value>>;

class Interpreter {
 public:
  Interpreter(const Ast& ast, const Environment& environment)
      : ast_(ast),
        environment_(environment),
        budget_(environment.limits, environment.interrupted) {}

  Result<QuotedText> render() {
    scopes_.emplace_back();
    outputs_.emplace_back();
    VOLTA_TRY(const Flow flow, run(ast_.root));
    static_cast<void>(flow);
    return std::move(outputs_.front());
  }

 private:
  // --- Errors ------------------------------------------------------------------------------------
  // Puts the line of the innermost node before a message, once: nothing ever catches an error.
  template <typename T>
  Result<T> at(const Node& node, Result<T> result) {
    if (result || located_) return result;
    located_ = true;
    Error error = std::move(result).error();
    if (error.code() == ErrorCode::kInvalidArgument) {
      return fail(error.code(), fmt::format("the chat template refuses this conversation: {} "
                                            "(line {} of the template)",
                                            error.message(), node.line));
    }
    return std::unexpected(std::move(error).with_context(fmt::format("line {}", node.line)));
  }

  Status enter() {
    budget_.step();
    VOLTA_TRY(budget_.check());
    if (level_ <= kMaxStack) return {};
    return fail(ErrorCode::kInvalidFile, "macros call each other too deeply");
  }

  // --- Names -------------------------------------------------------------------------------------
  static Value* find_in(Scope& scope, std::string_view name) {
    const auto found =
        std::ranges::find(scope, name, [](const auto& entry) { return entry.first; });
    return found == scope.end() ? nullptr : &found->second;
  }

  Result<Value> look_up(std::string_view name) {
    std::size_t seen = scopes_.front().size();
    for (std::size_t i = scopes_.size(); i-- > base_; seen += 1 + scopes_[i].size()) {
      if (const Value* value = find_in(scopes_[i], name)) {
        budget_.search(seen + scopes_[i].size(), name.size());
        return *value;
      }
    }
    budget_.search(seen, name.size());
    if (const Value* value = find_in(scopes_.front(), name)) return *value;
    for (const auto& [known, value] : environment_.variables) {
      if (known == name) return value;
    }
    if (is_function(name)) {
      return Value(std::make_shared<const Function>(
          Function{.kind = Function::Kind::kGlobal, .name = std::string(name)}));
    }
    if (is_missing_function(name)) {
      return fail(ErrorCode::kUnsupported, fmt::format("'{}' is not supported", name));
    }
    return Value::undefined(fmt::format("'{}' is undefined", name));
  }

  void set(std::string_view name, Value value) {
    Scope& scope = scopes_.back();
    budget_.search(scope.size(), name.size());
    if (Value* known = find_in(scope, name)) {
      *known = std::move(value);
    } else {
      scope.emplace_back(name, std::move(value));
    }
  }

  Status assign(NodeId id, Value value) {
    const Node& target = ast_[id];
    switch (target.kind) {
      case NodeKind::kName:
        set(target.name, std::move(value));
        return {};
      case NodeKind::kMember:
        return set_member(target, std::move(value));
      default:
        break;
    }
    VOLTA_TRY(const auto items, at(target, iterate(budget_, value)));
    if (items.size() != target.children.size()) {
      return at<void>(
          target, fail(ErrorCode::kInvalidFile, fmt::format("{} names for {} values",
                                                            target.children.size(), items.size())));
    }
    for (std::size_t i = 0; i < items.size(); ++i) {
      VOLTA_TRY(assign(target.children[i], items[i]));
    }
    return {};
  }

  Status set_member(const Node& target, Value value) {
    VOLTA_TRY(const Value object, at(target, look_up(target.name)));
    Namespace* names = object.if_namespace();
    if (names == nullptr) {
      return at<void>(
          target, fail(ErrorCode::kInvalidFile,
                       fmt::format("'{}' is no namespace: it has no members to set", target.name)));
    }
    const std::string& name = target.names.front();
    if (name.starts_with("_")) {
      return at<void>(target, fail(ErrorCode::kInvalidFile,
                                   fmt::format("the member '{}' is not safe to set", name)));
    }
    VOLTA_TRY(at(target, check_storable(value)));
    budget_.search(names->members.size(), name.size());
    const auto known =
        std::ranges::find(names->members, name, &std::pair<std::string, Value>::first);
    if (known != names->members.end()) {
      known->second = std::move(value);
    } else {
      names->members.emplace_back(name, std::move(value));
    }
    return {};
  }

  // --- Statements --------------------------------------------------------------------------------
  Status emit(const Text& text) {
    const QuotedText& content = *text.content;
    const std::size_t size = content.text.size();
    const std::size_t ranges = content.quoted.size();
    if (!budget_.make_bytes(size + (ranges > 1 ? ranges * sizeof(TextRange) : 0))) {
      return budget_.check();
    }
    QuotedText& out = outputs_.back();
    if (static_cast<std::int64_t>(out.text.size() + size) > environment_.limits.output) {
      return fail(ErrorCode::kInvalidFile, "the template makes too much text");
    }
    out.append_part(content, 0, size);
    return {};
  }

  Result<Flow> run(NodeId id) {
    const Level level(level_);
    const Node& node = ast_[id];
    VOLTA_TRY(at(node, enter()));
    switch (node.kind) {
      case NodeKind::kBlock:
        for (const NodeId child : node.children) {
          VOLTA_TRY(const Flow flow, run(child));
          if (flow != Flow::kNext) return flow;
        }
        return Flow::kNext;
      case NodeKind::kText:
        VOLTA_TRY(at(node, emit(*node.value.if_text())));
        return Flow::kNext;
      case NodeKind::kPrint:
        return run_print(node);
      case NodeKind::kIf:
        return run_if(node);
      case NodeKind::kFor:
        return run_for(node);
      case NodeKind::kBreak:
        return Flow::kBreak;
      case NodeKind::kContinue:
        return Flow::kContinue;
      case NodeKind::kScope: {
        scopes_.emplace_back();
        VOLTA_TRY(const Flow flow, run(node.children.front()));
        scopes_.pop_back();
        return flow;
      }
      case NodeKind::kWith:
        return run_with(node);
      default:
        VOLTA_TRY(run_definition(id));
        return Flow::kNext;
    }
  }

  // Statements that name something, or change what a block made.
  Status run_definition(NodeId id) {
    const Node& node = ast_[id];
    if (node.kind == NodeKind::kSet) {
      VOLTA_TRY(Value value, evaluate(node.children[1]));
      return assign(node.children[0], std::move(value));
    }
    if (node.kind == NodeKind::kMacro) {
      // A macro sees the names of the template's top level, nothing in between.
      if (scopes_.size() > 1) {
        return at<void>(node, fail(ErrorCode::kUnsupported,
                                   fmt::format("the macro '{}' inside a loop or a macro is not "
                                               "supported",
                                               node.name)));
      }
      set(node.name, Value(std::make_shared<const Function>(
                         Function{.kind = Function::Kind::kMacro, .node = id, .name = node.name})));
      return {};
    }
    const bool sets = node.kind == NodeKind::kSetBlock;
    const NodeId filter = sets ? node.children[2] : node.children[0];
    scopes_.emplace_back();
    VOLTA_TRY(Value text, capture(node.children[1]));
    scopes_.pop_back();
    if (filter != kNone) {
      block_text_.push_back(std::move(text));
      VOLTA_TRY(text, evaluate(filter));
      block_text_.pop_back();
    }
    if (sets) return assign(node.children[0], std::move(text));
    return at(node, print_value(text));
  }

  // What a block prints.
  Result<Value> capture(NodeId block) {
    outputs_.emplace_back();
    VOLTA_TRY(const Flow flow, run(block));
    static_cast<void>(flow);
    auto text = std::make_shared<const QuotedText>(std::move(outputs_.back()));
    outputs_.pop_back();
    return Value(Text{std::move(text)});
  }

  Status print_value(const Value& value) {
    if (const Text* text = value.if_text()) return emit(*text);
    VOLTA_TRY(const Value text, to_text(budget_, value));
    return emit(*text.if_text());
  }

  Result<Flow> run_print(const Node& node) {
    VOLTA_TRY(const Value value, evaluate(node.children.front()));
    VOLTA_TRY(at(node, print_value(value)));
    return Flow::kNext;
  }

  Result<Flow> run_if(const Node& node) {
    std::size_t i = 0;
    for (; i + 1 < node.children.size(); i += 2) {
      VOLTA_TRY(const Value test, evaluate(node.children[i]));
      if (truth(test)) return run(node.children[i + 1]);
    }
    return i < node.children.size() ? run(node.children[i]) : Flow::kNext;
  }

  Result<Flow> run_with(const Node& node) {
    std::vector<Value> values;
    for (std::size_t i = 1; i < node.children.size(); i += 2) {
      VOLTA_TRY(Value value, evaluate(node.children[i]));
      values.push_back(std::move(value));
    }
    scopes_.emplace_back();
    for (std::size_t i = 0; i < values.size(); ++i) {
      VOLTA_TRY(assign(node.children[2 * i], std::move(values[i])));
    }
    VOLTA_TRY(const Flow flow, run(node.children.back()));
    scopes_.pop_back();
    return flow;
  }

  Result<Flow> run_for(const Node& node) {
    VOLTA_TRY(const Value sequence, evaluate(node.children[1]));
    auto loop = std::make_shared<LoopState>();
    VOLTA_TRY(loop->items, at(node, iterate(budget_, sequence)));
    loop->target = node.children[0];
    loop->filter = node.children[2];
    loop->scopes = scopes_.size();
    loop->base = base_;
    bool whole_round = false;
    while (true) {
      VOLTA_TRY(auto item, draw(*loop));
      if (!item) break;
      ++loop->index0;
      loop->previous = std::exchange(loop->current, *item);
      scopes_.emplace_back();
      set("loop", Value(loop));
      VOLTA_TRY(assign(loop->target, *std::move(item)));
      VOLTA_TRY(const Flow flow, run(node.children[3]));
      scopes_.pop_back();
      if (flow == Flow::kBreak) break;
      // As in Jinja: a round that `continue` ended does not count.
      whole_round = whole_round || flow == Flow::kNext;
    }
    if (whole_round || node.children[4] == kNone) return Flow::kNext;
    scopes_.emplace_back();
    VOLTA_TRY(const Flow flow, run(node.children[4]));
    scopes_.pop_back();
    return flow;
  }

  // --- Loops -------------------------------------------------------------------------------------
  // The next item that passes the filter; nothing at the end.
  Result<std::optional<Value>> draw(LoopState& loop) {
    if (!loop.ahead.empty()) {
      Value first = std::move(loop.ahead.front());
      loop.ahead.pop_front();
      return first;
    }
    while (loop.drawn < loop.items.size()) {
      Value item = loop.items[loop.drawn++];
      if (loop.filter == kNone) return item;
      VOLTA_TRY(const bool passes, passes_filter(loop, item));
      if (passes) return item;
    }
    return std::nullopt;
  }

  Result<bool> passes_filter(const LoopState& loop, const Value& item) {
    std::vector<Scope> inner(
        std::make_move_iterator(scopes_.begin() + static_cast<std::ptrdiff_t>(loop.scopes)),
        std::make_move_iterator(scopes_.end()));
    budget_.step(inner.size() / 4);
    scopes_.resize(loop.scopes);
    const std::size_t base = std::exchange(base_, loop.base);
    scopes_.emplace_back();
    VOLTA_TRY(assign(loop.target, item));
    VOLTA_TRY(const Value test, evaluate(loop.filter));
    scopes_.pop_back();
    base_ = base;
    std::ranges::move(inner, std::back_inserter(scopes_));
    return truth(test);
  }

  // Draws the next item, or all, before their rounds.
  Status look_ahead(LoopState& loop, bool all) {
    if (loop.filter == kNone && !all) {
      if (loop.ahead.empty() && loop.drawn < loop.items.size()) {
        loop.ahead.push_back(loop.items[loop.drawn++]);
      }
      return {};
    }
    std::deque<Value> drawn = std::exchange(loop.ahead, {});
    while (all || drawn.empty()) {
      VOLTA_TRY(auto item, draw(loop));
      if (!item) break;
      drawn.push_back(*std::move(item));
    }
    loop.ahead = std::move(drawn);
    return {};
  }

  Result<std::int64_t> loop_length(LoopState& loop) {
    const auto begun = loop.index0 + 1;
    if (loop.filter != kNone) VOLTA_TRY(look_ahead(loop, true));
    return begun + static_cast<std::int64_t>(loop.ahead.size() + loop.items.size() - loop.drawn);
  }

  Result<Value> loop_member(LoopState& loop, std::string_view name) {
    const std::int64_t index0 = loop.index0;
    if (name == "index") return Value(index0 + 1);
    if (name == "index0") return Value(index0);
    if (name == "first") return Value(index0 == 0);
    if (name == "depth") return Value(loop.depth0 + 1);
    if (name == "depth0") return Value(loop.depth0);
    if (name == "previtem") {
      return index0 == 0 ? Value::undefined("there is no previous item") : loop.previous;
    }
    if (name == "last" || name == "nextitem") {
      VOLTA_TRY(look_ahead(loop, false));
      if (name == "last") return Value(loop.ahead.empty());
      return loop.ahead.empty() ? Value::undefined("there is no next item") : loop.ahead.front();
    }
    if (name == "length" || name == "revindex" || name == "revindex0") {
      VOLTA_TRY(const std::int64_t length, loop_length(loop));
      return Value(name == "length" ? length : length - index0 - (name == "revindex0" ? 1 : 0));
    }
    return fail(ErrorCode::kUnsupported, fmt::format("'loop.{}' is not supported", name));
  }

  // loop.cycle(...) and loop.changed(...)
  Result<Value> loop_method(LoopState& loop, std::string_view name, const Arguments& arguments) {
    if (!arguments.named.empty()) {
      return fail(ErrorCode::kInvalidFile, fmt::format("loop.{} takes no named arguments", name));
    }
    if (name == "cycle") {
      if (arguments.positional.empty()) {
        return fail(ErrorCode::kInvalidFile, "loop.cycle takes a value at least");
      }
      return arguments
          .positional[static_cast<std::size_t>(loop.index0) % arguments.positional.size()];
    }
    VOLTA_TRY(Value now, make_sequence(budget_, SequenceKind::kTuple, arguments.positional));
    const bool changed = !loop.has_changed || !equal(budget_, loop.last_changed, now);
    loop.has_changed = true;
    loop.last_changed = std::move(now);
    return Value(changed);
  }

  // --- Expressions -------------------------------------------------------------------------------
  Result<Value> evaluate(NodeId id) {
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
        return at(node, make_sequence(budget_,
                                      node.kind == NodeKind::kList ? SequenceKind::kList
                                                                   : SequenceKind::kTuple,
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
        return evaluate_filter(node);
      case NodeKind::kTest:
        return evaluate_test(node);
      case NodeKind::kCondition:
        return evaluate_condition(node);
      default:
        return evaluate_operator(node);
    }
  }

  Result<std::vector<Value>> evaluate_all(std::span<const NodeId> nodes) {
    std::vector<Value> values;
    values.reserve(nodes.size());
    for (const NodeId id : nodes) {
      VOLTA_TRY(Value value, evaluate(id));
      values.push_back(std::move(value));
    }
    return values;
  }

  Result<Value> evaluate_dict(const Node& node) {
    VOLTA_TRY(auto values, evaluate_all(node.children));
    std::vector<std::pair<Value, Value>> members;
    for (std::size_t i = 0; i + 1 < values.size(); i += 2) {
      members.emplace_back(std::move(values[i]), std::move(values[i + 1]));
    }
    return at(node, make_dict(budget_, std::move(members)));
  }

  Result<Value> evaluate_attribute(const Node& node) {
    VOLTA_TRY(const Value object, evaluate(node.children.front()));
    if (LoopState* loop = object.if_loop()) return at(node, loop_member(*loop, node.name));
    return at(node, get_attribute(budget_, object, node.name));
  }

  Result<Value> evaluate_item(const Node& node) {
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

  // The children behind the first: arguments, the last of them with names.
  Result<Arguments> evaluate_arguments(const Node& node) {
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

  Result<Value> evaluate_call(const Node& node) {
    const Node& callee = ast_[node.children.front()];
    if (callee.kind == NodeKind::kAttribute &&
        (callee.name == "cycle" || callee.name == "changed")) {
      VOLTA_TRY(const Value object, evaluate(callee.children.front()));
      if (LoopState* loop = object.if_loop()) {
        VOLTA_TRY(const Arguments arguments, evaluate_arguments(node));
        return at(node, loop_method(*loop, callee.name, arguments));
      }
    }
    VOLTA_TRY(const Value function, evaluate(node.children.front()));
    VOLTA_TRY(const Arguments arguments, evaluate_arguments(node));
    const Function* known = function.if_function();
    if (known == nullptr) {
      const Undefined* undefined = function.if_undefined();
      return at<Value>(
          node, fail(ErrorCode::kInvalidFile,
                     undefined != nullptr && undefined->message != nullptr
                         ? *undefined->message
                         : fmt::format("a value of type {} is no function", function.type_name())));
    }
    switch (known->kind) {
      case Function::Kind::kGlobal:
        return at(node, call_function(budget_, known->name, arguments, environment_.now));
      case Function::Kind::kMethod:
        return at(node, call_method(budget_, *known->self, known->name, arguments));
      case Function::Kind::kMacro:
        break;
    }
    return call_macro(node, ast_[known->node], arguments);
  }

  Result<Value> call_macro(const Node& call, const Node& macro, const Arguments& arguments) {
    Scope scope;
    VOLTA_TRY(at(call, bind_macro(macro, arguments, scope)));
    scopes_.push_back(std::move(scope));
    const std::size_t base = std::exchange(base_, scopes_.size() - 1);
    // Default values see the parameters before them.
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

  static Status bind_macro(const Node& macro, const Arguments& arguments, Scope& scope) {
    if (arguments.positional.size() > macro.names.size()) {
      return fail(ErrorCode::kInvalidFile, fmt::format("macro '{}' takes {} arguments at most",
                                                       macro.name, macro.names.size()));
    }
    for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
      scope.emplace_back(macro.names[i], arguments.positional[i]);
    }
    for (const auto& [name, value] : arguments.named) {
      const auto parameter = std::ranges::find(macro.names, name);
      if (parameter == macro.names.end() || find_in(scope, name) != nullptr) {
        return fail(ErrorCode::kInvalidFile,
                    fmt::format("macro '{}' cannot take the argument '{}'", macro.name, name));
      }
      scope.emplace_back(*parameter, value);
    }
    return {};
  }

  Result<Value> evaluate_filter(const Node& node) {
    Value input;
    if (node.children.front() == kNone) {
      input = block_text_.back();
    } else {
      VOLTA_TRY(input, evaluate(node.children.front()));
    }
    VOLTA_TRY(const Arguments arguments, evaluate_arguments(node));
    if (LoopState* loop = input.if_loop(); loop != nullptr && node.name == "length") {
      return at(node, loop_member(*loop, "length"));
    }
    return at(node, apply_filter(budget_, node.name, input, arguments));
  }

  Result<Value> evaluate_test(const Node& node) {
    VOLTA_TRY(const Value input, evaluate(node.children.front()));
    VOLTA_TRY(const Arguments arguments, evaluate_arguments(node));
    VOLTA_TRY(const bool holds, at(node, apply_test(budget_, node.name, input, arguments)));
    return Value(holds);
  }

  Result<Value> evaluate_condition(const Node& node) {
    VOLTA_TRY(const Value test, evaluate(node.children[0]));
    if (truth(test)) return evaluate(node.children[1]);
    if (node.children[2] != kNone) return evaluate(node.children[2]);
    return Value::undefined(
        fmt::format("the inline if of line {} has no else, and its condition is false", node.line));
  }

  Result<Value> evaluate_operator(const Node& node) {
    switch (node.kind) {
      case NodeKind::kAnd:
      case NodeKind::kOr: {
        Value value;
        for (const NodeId child : node.children) {
          VOLTA_TRY(value, evaluate(child));
          if (truth(value) == (node.kind == NodeKind::kOr)) break;
        }
        return value;
      }
      case NodeKind::kCompare:
        return evaluate_compare(node);
      case NodeKind::kConcat:
        return evaluate_concat(node);
      default:
        break;
    }
    VOLTA_TRY(const Value first, evaluate(node.children[0]));
    if (node.kind == NodeKind::kNot) return Value(!truth(first));
    if (node.kind == NodeKind::kNegate) return at(node, negate(first));
    if (node.kind == NodeKind::kPositive) {
      return at(node, calculate(budget_, Operator::kAdd, Value(std::int64_t{0}), first));
    }
    VOLTA_TRY(const Value second, evaluate(node.children[1]));
    return at(node, calculate(budget_, node.operators.front(), first, second));
  }

  Result<Value> evaluate_compare(const Node& node) {
    VOLTA_TRY(Value left, evaluate(node.children[0]));
    for (std::size_t i = 0; i < node.operators.size(); ++i) {
      VOLTA_TRY(Value right, evaluate(node.children[i + 1]));
      VOLTA_TRY(const bool holds, at(node, compare_with(budget_, node.operators[i], left, right)));
      if (!holds) return Value(false);
      left = std::move(right);
    }
    return Value(true);
  }

  Result<Value> evaluate_concat(const Node& node) {
    VOLTA_TRY(const auto values, evaluate_all(node.children));
    TextBuilder out(budget_);
    for (const Value& value : values) VOLTA_TRY(at(node, print(out, value)));
    return at(node, out.finish());
  }

  const Ast& ast_;
  const Environment& environment_;
  Budget budget_;
  std::vector<Scope> scopes_;  // The first is the template's, the last the current one.
  std::size_t base_ = 0;       // Where the scopes of the running macro begin.
  std::vector<QuotedText> outputs_;
  std::vector<Value> block_text_;  // What the filters of a block begin with.
  int level_ = 0;
  bool located_ = false;
};

}  // namespace

Result<QuotedText> render(const Ast& ast, const Environment& environment) {
  return Interpreter(ast, environment).render();
}

}  // namespace volta::jinja
