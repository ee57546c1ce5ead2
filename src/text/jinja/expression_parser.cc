#include "text/jinja/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "text/jinja/operators.h"

namespace volta::jinja {

constexpr int kMaxNesting = 64;  // Of brackets and blocks; bounds the parser's stack.
constexpr int kMaxDepth = 160;   // Of the tree; bounds the interpreter's stack.
constexpr std::size_t kMaxArguments = 32;

Status ExpressionParser::expect(std::string_view op) {
  if (take(op)) return {};
  return expected(fmt::format("'{}'", op));
}
Result<std::string> ExpressionParser::expect_name() {
  if (current().kind != TokenKind::kName) return expected("a name");
  std::string name = current().text;
  next();
  return name;
}

std::unexpected<Error> ExpressionParser::error(std::string_view message, int line, ErrorCode code) {
  return fail(code, fmt::format("line {}: {}", line, message));
}
std::unexpected<Error> ExpressionParser::unsupported(std::string_view what, int line) {
  return error(fmt::format("{} is not supported", what), line, ErrorCode::kUnsupported);
}
std::unexpected<Error> ExpressionParser::expected(std::string_view what) const {
  const Token& token = current();
  const std::string found = token.kind == TokenKind::kEnd    ? "the end of the template"
                            : token.kind == TokenKind::kText ? "text"
                                                             : fmt::format("'{}'", token.text);
  return error(fmt::format("expected {}, found {}", what, found), token.line);
}

Result<NodeId> ExpressionParser::add(Node node) {
  for (const NodeId child : node.children) {
    if (child != kNone) node.depth = std::max(node.depth, ast_[child].depth + 1);
  }
  if (node.depth > kMaxDepth) return error("the template nests too deeply", node.line);
  ast_.nodes.push_back(std::move(node));
  return static_cast<NodeId>(ast_.nodes.size()) - 1;
}
Result<NodeId> ExpressionParser::add(NodeKind kind, int line, std::vector<NodeId> children) {
  return add({.kind = kind, .line = line, .children = std::move(children)});
}
Result<NodeId> ExpressionParser::constant(Value value, int line) {
  return add({.kind = NodeKind::kConstant, .line = line, .value = std::move(value)});
}

Status ExpressionParser::check_level() const {
  if (level_ <= kMaxNesting) return {};
  return error("the template nests too deeply", current().line);
}

Result<NodeId> ExpressionParser::tuple(Names ends, bool with_condition, bool in_brackets) {
  const int line = current().line;
  std::vector<NodeId> items;
  bool is_tuple = false;
  while (true) {
    const TokenKind kind = current().kind;
    if (kind == TokenKind::kPrintEnd || kind == TokenKind::kTagEnd || sees(")") ||
        (kind == TokenKind::kName && one_of(current().text, ends))) {
      break;
    }
    VOLTA_TRY(const NodeId item, with_condition ? expression() : parse_logic(true));
    items.push_back(item);
    if (!take(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return items.front();
  if (!is_tuple && !in_brackets) return expected("an expression");
  return add(NodeKind::kTuple, line, std::move(items));
}

Result<NodeId> ExpressionParser::expression() {
  const Level level(level_);
  VOLTA_TRY(check_level());
  const int line = current().line;
  VOLTA_TRY(NodeId value, parse_logic(true));
  while (take("if")) {
    VOLTA_TRY(const NodeId test, parse_logic(true));
    NodeId otherwise = kNone;
    if (take("else")) {
      VOLTA_TRY(otherwise, expression());
    }
    VOLTA_TRY(value, add(NodeKind::kCondition, line, {test, value, otherwise}));
  }
  return value;
}

Result<NodeId> ExpressionParser::parse_logic(bool is_or) {
  const int line = current().line;
  std::vector<NodeId> operands;
  do {
    VOLTA_TRY(const NodeId operand, is_or ? parse_logic(false) : parse_not());
    operands.push_back(operand);
  } while (take(is_or ? "or" : "and"));
  if (operands.size() == 1) return operands.front();
  return add(is_or ? NodeKind::kOr : NodeKind::kAnd, line, std::move(operands));
}
Result<NodeId> ExpressionParser::parse_not() {
  const int line = current().line;
  if (!take("not")) return parse_operators(kCompareLevel);
  const Level level(level_);
  VOLTA_TRY(check_level());
  VOLTA_TRY(const NodeId operand, parse_not());
  return add(NodeKind::kNot, line, {operand});
}

// Takes the next token if it is an operator of this level; null otherwise.
const OperatorRow* ExpressionParser::take_operator(int level) {
  const bool negated = sees("not") && ahead().kind == TokenKind::kName && ahead().text == "in";
  for (const OperatorRow& row : kOperators) {
    if (row.level != level || !(negated ? row.op == Operator::kNotIn : sees(row.symbol))) continue;
    next();
    if (negated) next();
    return &row;
  }
  return nullptr;
}

// Parses the operators of one level. Each operator becomes a node; but a chain of `~` becomes one
// node with all operands.
Result<NodeId> ExpressionParser::parse_operators(int level) {
  if (level == kLevels) {
    VOLTA_TRY(const NodeId value, parse_unary(true));
    if (sees("**")) return unsupported("'**'", current().line);
    return value;
  }
  VOLTA_TRY(NodeId left, parse_operators(level + 1));
  std::vector<NodeId> operands = {left};
  while (true) {
    const int line = current().line;
    const OperatorRow* const row = take_operator(level);
    if (row == nullptr) break;
    VOLTA_TRY(const NodeId right, parse_operators(level + 1));
    operands.push_back(right);
    if (level == kConcatLevel) continue;
    if (level == kCompareLevel && operands.size() > 2) return unsupported("a < b < c", line);
    const NodeKind kind = level == kCompareLevel ? NodeKind::kCompare : NodeKind::kBinary;
    VOLTA_TRY(left, add({.kind = kind, .line = line, .op = row->op, .children = {left, right}}));
  }
  if (level != kConcatLevel || operands.size() == 1) return left;
  return add(NodeKind::kConcat, ast_[left].line, std::move(operands));
}

Result<NodeId> ExpressionParser::parse_unary(bool with_filters) {
  const Level level(level_);
  VOLTA_TRY(check_level());
  const int line = current().line;
  NodeId value = kNone;
  if (sees("+")) return unsupported("'+' before a value", line);
  if (take("-")) {
    VOLTA_TRY(const NodeId operand, parse_unary(false));
    VOLTA_TRY(value, add(NodeKind::kNegate, line, {operand}));
  } else {
    VOLTA_TRY(value, primary());
  }
  VOLTA_TRY(value, postfix(value));
  if (!with_filters) return value;
  while (true) {
    if (take("|")) {
      VOLTA_TRY(value, filter(value));
    } else if (sees("is")) {
      VOLTA_TRY(value, test(value));
    } else if (sees("(")) {
      VOLTA_TRY(value, call(value));
    } else {
      return value;
    }
  }
}

Result<NodeId> ExpressionParser::primary() {
  const Token token = current();
  const std::size_t here = at_;
  next();
  switch (token.kind) {
    case TokenKind::kName:
      if (one_of(token.text, {"true", "True"})) return constant(Value(true), token.line);
      if (one_of(token.text, {"false", "False"})) return constant(Value(false), token.line);
      if (one_of(token.text, {"none", "None"})) return constant(Value(None{}), token.line);
      return add({.kind = NodeKind::kName, .line = token.line, .name = token.text});
    case TokenKind::kString:
      if (current().kind == TokenKind::kString)
        return unsupported("a string after a string", token.line);
      return constant(Value::text(token.text), token.line);
    case TokenKind::kInteger:
      return constant(Value(token.integer), token.line);
    case TokenKind::kOperator:
      if (token.text == "(") {
        VOLTA_TRY(const NodeId inner, tuple({}, true, true));
        VOLTA_TRY(expect(")"));
        return inner;
      }
      if (token.text == "[") return items(NodeKind::kList, "]", token.line);
      if (token.text == "{") return items(NodeKind::kDict, "}", token.line);
      break;
    default:
      break;
  }
  at_ = here;
  return expected("an expression");
}

// Parses the items of a list, or the keys and values of a dict.
Result<NodeId> ExpressionParser::items(NodeKind kind, std::string_view close, int line) {
  std::vector<NodeId> items;
  while (!sees(close)) {
    if (!items.empty()) VOLTA_TRY(expect(","));
    if (sees(close)) break;
    VOLTA_TRY(const NodeId item, expression());
    items.push_back(item);
    if (kind == NodeKind::kList) continue;
    VOLTA_TRY(expect(":"));
    VOLTA_TRY(const NodeId value, expression());
    items.push_back(value);
  }
  next();
  return add(kind, line, std::move(items));
}

Result<NodeId> ExpressionParser::postfix(NodeId value) {
  while (true) {
    if (sees(".") || sees("[")) {
      VOLTA_TRY(value, subscript(value));
    } else if (sees("(")) {
      VOLTA_TRY(value, call(value));
    } else {
      return value;
    }
  }
}

Result<NodeId> ExpressionParser::subscript(NodeId object) {
  const int line = current().line;
  if (take(".")) {
    const Token token = current();
    next();
    if (token.kind == TokenKind::kName) {
      return add(
          {.kind = NodeKind::kAttribute, .line = line, .name = token.text, .children = {object}});
    }
    if (token.kind == TokenKind::kInteger) return unsupported("a number after '.'", line);
    return error("expected a name after '.'", line);
  }
  next();
  if (sees("]")) return expected("an index");
  VOLTA_TRY(const NodeId index, slice_or_index());
  if (sees(",")) return unsupported("an index with several parts", line);
  VOLTA_TRY(expect("]"));
  return add(NodeKind::kItem, line, {object, index});
}
Result<NodeId> ExpressionParser::slice_or_index() {
  const int line = current().line;
  std::array<NodeId, 3> parts = {kNone, kNone, kNone};
  if (!sees(":")) {
    VOLTA_TRY(parts[0], expression());
    if (!sees(":")) return parts[0];
  }
  next();
  if (!sees(":") && !sees("]") && !sees(",")) {
    VOLTA_TRY(parts[1], expression());
  }
  if (take(":") && !sees("]") && !sees(",")) {
    VOLTA_TRY(parts[2], expression());
  }
  return add(NodeKind::kSlice, line, {parts[0], parts[1], parts[2]});
}

// Parses the arguments in parentheses and appends them.
Status ExpressionParser::arguments(Node& node) {
  VOLTA_TRY(expect("("));
  bool first = true;
  while (!sees(")")) {
    if (!first) VOLTA_TRY(expect(","));
    if (sees(")")) break;
    first = false;
    if (sees("*") || sees("**")) {
      return unsupported(fmt::format("'{}' before an argument", current().text), current().line);
    }
    if (current().kind == TokenKind::kName && ahead().kind == TokenKind::kOperator &&
        ahead().text == "=") {
      node.names.push_back(current().text);
      next();
      next();
    } else if (!node.names.empty()) {
      return error("an argument without a name follows one with it", current().line);
    }
    VOLTA_TRY(const NodeId value, expression());
    node.children.push_back(value);
    if (node.children.size() > kMaxArguments) return error("too many arguments", node.line);
  }
  next();
  return {};
}
Result<NodeId> ExpressionParser::call(NodeId function) {
  Node node{.kind = NodeKind::kCall, .line = current().line, .children = {function}};
  VOLTA_TRY(arguments(node));
  return add(std::move(node));
}

Result<NodeId> ExpressionParser::filter(NodeId value) {
  Node node{.kind = NodeKind::kFilter, .line = current().line, .children = {value}};
  VOLTA_TRY(node.name, expect_name());
  if (sees("(")) VOLTA_TRY(arguments(node));
  return add(std::move(node));
}

Result<NodeId> ExpressionParser::test(NodeId value) {
  const int line = current().line;
  next();
  const bool negated = take("not");
  Node node{.kind = NodeKind::kTest, .line = line, .children = {value}};
  VOLTA_TRY(node.name, expect_name());
  const Token& token = current();
  const bool argument =
      (token.kind == TokenKind::kName && !one_of(token.text, {"else", "or", "and"})) ||
      token.kind == TokenKind::kString || token.kind == TokenKind::kInteger || sees("[") ||
      sees("{");
  if (sees("(")) {
    VOLTA_TRY(arguments(node));
  } else if (argument) {
    if (sees("is")) return error("tests with 'is' cannot be chained", line);
    const Level level(level_);
    VOLTA_TRY(check_level());
    VOLTA_TRY(NodeId operand, primary());
    VOLTA_TRY(operand, postfix(operand));
    node.children.push_back(operand);
  }
  VOLTA_TRY(const NodeId node_id, add(std::move(node)));
  if (!negated) return node_id;
  return add(NodeKind::kNot, line, {node_id});
}

}  // namespace volta::jinja
