// One run of a template: its names and their scopes, its output, and the functions that run
// statements (interpreter.cc) and evaluate expressions (expressions.cc). Only for these two files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"

namespace volta::jinja {

/// The state of a for block. Items are drawn from `items` one at a time, because the condition of
/// the loop (`for ... if`) may depend on variables that the body set in an earlier round.
struct LoopState {
  std::vector<Value> items;
  std::size_t drawn = 0;
  NodeId target = kNone;
  NodeId condition = kNone;
  std::size_t scopes = 0, base = 0;  ///< Those outside the loop, for its condition.
  std::int64_t index0 = -1;
  Value previous, current;
  std::optional<Value> next;  ///< Drawn before its own round.

  std::int64_t length() const { return static_cast<std::int64_t>(items.size()); }
};

enum class Flow : std::uint8_t { kNext, kBreak, kContinue };

class Run {
 public:
  Run(const Ast& ast, const Environment& environment)
      : ast_(ast),
        environment_(environment),
        budget_(environment.limits, environment.interrupted) {}

  Result<QuotedText> render();

 private:
  using Scope = std::vector<std::pair<std::string_view, Value>>;

  /// Puts the line of the innermost node before a message. Only once, as no error is caught.
  template <typename T>
  Result<T> at(const Node& node, Result<T> result) {
    if (result || located_) return result;
    return std::unexpected(locate(node, std::move(result).error()));
  }
  Error locate(const Node& node, Error error);
  Status enter();

  // Names.
  static Value* find_in(Scope& scope, std::string_view name);
  Result<Value> look_up(std::string_view name);
  void set(std::string_view name, Value value);
  Status assign(NodeId id, Value value);
  Status set_member(const Node& target, Value value);

  // Statements.
  Result<Flow> run(NodeId id);
  Result<Flow> run_block(const Node& node);
  Result<Flow> run_print(const Node& node);
  Result<Flow> run_if(const Node& node);
  Result<Flow> run_for(const Node& node);
  Status define(NodeId id);
  Status emit(const Text& text);
  Result<Value> capture(NodeId block);

  // Loops.
  Result<std::optional<Value>> draw(LoopState& loop);
  Result<bool> passes(const LoopState& loop, const Value& item);
  Result<Value> loop_member(LoopState& loop, std::string_view name);

  // Expressions.
  Result<Value> evaluate(NodeId id);
  Result<std::vector<Value>> evaluate_all(std::span<const NodeId> nodes);
  Result<Value> evaluate_dict(const Node& node);
  Result<Value> evaluate_attribute(const Node& node);
  Result<Value> evaluate_item(const Node& node);
  Result<Arguments> evaluate_arguments(const Node& node);
  Result<Value> evaluate_call(const Node& node);
  std::unexpected<Error> no_function(const Node& call, const Value& callee) const;
  Result<Value> evaluate_use(const Node& node);
  Result<Value> evaluate_condition(const Node& node);
  Result<Value> evaluate_operator(const Node& node);
  Result<Value> evaluate_concat(const Node& node);
  Result<Value> call_macro(const Node& call, const Node& macro, const Arguments& arguments);
  static Status bind_macro(const Node& macro, const Arguments& arguments, Scope& scope);

  const Ast& ast_;
  const Environment& environment_;
  Budget budget_;
  std::vector<Scope> scopes_;  // The first is the template's, the last the current one.
  std::size_t base_ = 0;       // The first scope of the running macro.
  std::vector<QuotedText> outputs_;
  int level_ = 0;
  bool located_ = false;
};

}  // namespace volta::jinja
