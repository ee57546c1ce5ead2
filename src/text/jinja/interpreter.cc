#include "text/jinja/interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "text/jinja/run.h"

namespace volta::jinja {

// The limit for nested calls of evaluate() and run(), which bounds the stack.
constexpr int kMaxStack = 600;
// What a round of a loop costs besides its body: a scope with two names takes as long as evaluating
// this many expressions.
constexpr std::uint64_t kRoundSteps = 6;

Result<QuotedText> Run::render() {
  scopes_.emplace_back();
  outputs_.emplace_back();
  VOLTA_TRY(run(ast_.root));
  return std::move(outputs_.front());
}

Error Run::locate(const Node& node, Error error) {
  located_ = true;
  if (error.code() == ErrorCode::kInvalidArgument) {
    return Error(error.code(), fmt::format("the chat template refuses this conversation: {} "
                                           "(line {} of the template)",
                                           error.message(), node.line));
  }
  return std::move(error).with_context(fmt::format("line {}", node.line));
}

Status Run::enter() {
  budget_.step();
  VOLTA_TRY(budget_.check());
  if (level_ <= kMaxStack) return {};
  return type_error("macros call each other too deeply");
}

Value* Run::find_in(Scope& scope, std::string_view name) {
  const auto found = std::ranges::find(scope, name, [](const auto& entry) { return entry.first; });
  return found == scope.end() ? nullptr : &found->second;
}

Result<Value> Run::look_up(std::string_view name) {
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
  VOLTA_TRY(auto function, find_function(name));
  if (function) return *std::move(function);
  return Value::undefined(fmt::format("'{}' is undefined", name));
}

void Run::set(std::string_view name, Value value) {
  Scope& scope = scopes_.back();
  budget_.search(scope.size(), name.size());
  if (Value* known = find_in(scope, name)) {
    *known = std::move(value);
  } else {
    scope.emplace_back(name, std::move(value));
  }
}

Status Run::assign(NodeId id, Value value) {
  const Node& target = ast_[id];
  if (target.kind == NodeKind::kMember) return set_member(target, std::move(value));
  if (target.kind == NodeKind::kName) {
    set(target.name, std::move(value));
    return {};
  }
  VOLTA_TRY(const auto items, at(target, iterate(budget_, value)));
  if (items.size() != target.children.size()) {
    return at<void>(target, type_error(fmt::format("{} names for {} values", target.children.size(),
                                                   items.size())));
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    VOLTA_TRY(assign(target.children[i], items[i]));
  }
  return {};
}

Status Run::set_member(const Node& target, Value value) {
  VOLTA_TRY(const Value object, at(target, look_up(target.name)));
  Namespace* names = object.if_namespace();
  if (names == nullptr) {
    return at<void>(target, type_error(fmt::format("'{}' is no namespace: it has no members to set",
                                                   target.name)));
  }
  const std::string& name = target.names.front();
  if (name.starts_with("_")) {
    return at<void>(target, type_error(fmt::format("the member '{}' is not safe to set", name)));
  }
  VOLTA_TRY(at(target, check_storable(value)));
  budget_.search(names->members.size(), name.size());
  const auto known = std::ranges::find(names->members, name, &std::pair<std::string, Value>::first);
  if (known != names->members.end()) {
    known->second = std::move(value);
  } else {
    names->members.emplace_back(name, std::move(value));
  }
  return {};
}

// --- Statements ----------------------------------------------------------------------------------

Status Run::emit(const Text& text) {
  const QuotedText& content = *text.content;
  const std::size_t size = content.text.size();
  const std::size_t ranges = content.quoted.size();
  if (!budget_.make_bytes(size + (ranges > 1 ? ranges * sizeof(TextRange) : 0))) {
    return budget_.check();
  }
  QuotedText& out = outputs_.back();
  if (static_cast<std::int64_t>(out.text.size() + size) > environment_.limits.output) {
    return type_error("the template makes too much text");
  }
  out.append_part(content, 0, size);
  return {};
}

Result<Flow> Run::run(NodeId id) {
  const Level level(level_);
  const Node& node = ast_[id];
  VOLTA_TRY(at(node, enter()));
  switch (node.kind) {
    case NodeKind::kBlock:
      return run_block(node);
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
    default:
      VOLTA_TRY(define(id));
      return Flow::kNext;
  }
}

Result<Flow> Run::run_block(const Node& node) {
  for (const NodeId child : node.children) {
    VOLTA_TRY(const Flow flow, run(child));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

// Runs a set, with an expression or a block, or defines a macro.
Status Run::define(NodeId id) {
  const Node& node = ast_[id];
  if (node.kind == NodeKind::kSet) {
    VOLTA_TRY(Value value, evaluate(node.children[1]));
    return assign(node.children[0], std::move(value));
  }
  if (node.kind == NodeKind::kSetBlock) {
    scopes_.emplace_back();
    VOLTA_TRY(Value text, capture(node.children[1]));
    scopes_.pop_back();
    return assign(node.children[0], std::move(text));
  }
  // A macro can use the names of the template's top level, but none of the levels in between.
  if (scopes_.size() > 1) {
    return at<void>(node, unsupported(fmt::format("the macro '{}' inside a loop or a macro is not "
                                                  "supported",
                                                  node.name)));
  }
  set(node.name, Value(std::make_shared<const Function>(Function{.node = id})));
  return {};
}

// Runs a block and returns its output as text.
Result<Value> Run::capture(NodeId block) {
  outputs_.emplace_back();
  VOLTA_TRY(run(block));
  auto text = std::make_shared<const QuotedText>(std::move(outputs_.back()));
  outputs_.pop_back();
  return Value(Text{std::move(text)});
}

Result<Flow> Run::run_print(const Node& node) {
  VOLTA_TRY(const Value value, evaluate(node.children.front()));
  VOLTA_TRY(const Value text, at(node, to_text(budget_, value)));
  VOLTA_TRY(at(node, emit(*text.if_text())));
  return Flow::kNext;
}

Result<Flow> Run::run_if(const Node& node) {
  std::size_t i = 0;
  for (; i + 1 < node.children.size(); i += 2) {
    VOLTA_TRY(const Value test, evaluate(node.children[i]));
    if (truth(test)) return run(node.children[i + 1]);
  }
  return i < node.children.size() ? run(node.children[i]) : Flow::kNext;
}

Result<Flow> Run::run_for(const Node& node) {
  VOLTA_TRY(const Value sequence, evaluate(node.children[1]));
  auto loop = std::make_shared<LoopState>();
  VOLTA_TRY(loop->items, at(node, iterate(budget_, sequence)));
  loop->target = node.children[0];
  loop->condition = node.children[2];
  loop->scopes = scopes_.size();
  loop->base = base_;
  bool ended_a_round = false;  // In Jinja, break and continue do not count for else.
  while (true) {
    VOLTA_TRY(auto item, draw(*loop));
    if (!item) break;
    budget_.step(kRoundSteps);
    ++loop->index0;
    loop->previous = std::exchange(loop->current, *item);
    scopes_.emplace_back();
    set("loop", Value(loop));
    VOLTA_TRY(assign(loop->target, *std::move(item)));
    VOLTA_TRY(const Flow flow, run(node.children[3]));
    scopes_.pop_back();
    if (flow == Flow::kBreak) break;
    ended_a_round = ended_a_round || flow == Flow::kNext;
  }
  return ended_a_round || node.children[4] == kNone ? Flow::kNext : run(node.children[4]);
}

// --- Loops ---------------------------------------------------------------------------------------

// The next item that fulfils the loop's condition; nullopt at the end.
Result<std::optional<Value>> Run::draw(LoopState& loop) {
  if (loop.next) return std::exchange(loop.next, std::nullopt);
  while (loop.drawn < loop.items.size()) {
    Value item = loop.items[loop.drawn++];
    if (loop.condition == kNone) return item;
    VOLTA_TRY(const bool taken, passes(loop, item));
    if (taken) return item;
  }
  return std::nullopt;
}

Result<bool> Run::passes(const LoopState& loop, const Value& item) {
  std::vector<Scope> inner(
      std::make_move_iterator(scopes_.begin() + static_cast<std::ptrdiff_t>(loop.scopes)),
      std::make_move_iterator(scopes_.end()));
  budget_.step(inner.size() / 4);
  scopes_.resize(loop.scopes);
  const std::size_t base = std::exchange(base_, loop.base);
  scopes_.emplace_back();
  VOLTA_TRY(assign(loop.target, item));
  VOLTA_TRY(const Value test, evaluate(loop.condition));
  scopes_.pop_back();
  base_ = base;
  std::ranges::move(inner, std::back_inserter(scopes_));
  return truth(test);
}

Result<Value> Run::loop_member(LoopState& loop, std::string_view name) {
  // What a member of `loop` requires: only earlier items, the next item, or all items. A condition
  // is evaluated for each item in its own round. So the number of items in a loop with a condition
  // is not known.
  enum class Needs : std::uint8_t { kNothing, kNext, kAll };
  using enum Needs;
  struct Member {
    std::string_view name;
    Needs needs;
    Value (*get)(const LoopState&);
  };
  static constexpr std::array kMembers = {
      Member{"index", kNothing, [](const LoopState& l) { return Value(l.index0 + 1); }},
      Member{"index0", kNothing, [](const LoopState& l) { return Value(l.index0); }},
      Member{"first", kNothing, [](const LoopState& l) { return Value(l.index0 == 0); }},
      Member{"last", kNext, [](const LoopState& l) { return Value(!l.next.has_value()); }},
      Member{"previtem", kNothing, [](const LoopState& l) { return l.previous; }},
      Member{"nextitem", kNext, [](const LoopState& l) { return l.next.value_or(Value()); }},
      Member{"length", kAll, [](const LoopState& l) { return Value(l.length()); }},
      Member{"revindex", kAll, [](const LoopState& l) { return Value(l.length() - l.index0); }},
      Member{"revindex0", kAll,
             [](const LoopState& l) { return Value(l.length() - l.index0 - 1); }},
  };
  const auto* const member = std::ranges::find(kMembers, name, &Member::name);
  if (member == kMembers.end()) {
    return unsupported(fmt::format("'loop.{}' is not supported", name));
  }
  if (member->needs == kAll && loop.condition != kNone) {
    return unsupported(fmt::format("'loop.{}' in a loop with a condition is not supported", name));
  }
  if (member->needs == kNext && !loop.next) {
    VOLTA_TRY(loop.next, draw(loop));
  }
  return member->get(loop);
}

Result<QuotedText> render(const Ast& ast, const Environment& environment) {
  return Run(ast, environment).render();
}

}  // namespace volta::jinja
