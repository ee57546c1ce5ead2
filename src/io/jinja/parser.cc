#include "io/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <utility>

#include "io/jinja/level.h"
#include "io/jinja/lexer.h"

namespace volta::jinja {
namespace {

constexpr std::size_t kMaxSource = 1 << 20;  // Bytes; templates of models have some thousand.
constexpr int kMaxNesting = 64;              // Of brackets and blocks, for the parser's stack.
constexpr int kMaxDepth = 160;               // Of the tree, for the interpreter's.

constexpr std::size_t kMaxArguments = 32;

using Names = std::initializer_list<std::string_view>;

bool one_of(std::string_view name, Names names) {
  return std::ranges::find(names, name) != names.end();
}

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Result<Ast> run() {
    VOLTA_TRY(ast_.root, block({}));
    return std::move(ast_);
  }

 private:
  // --- Tokens ------------------------------------------------------------------------------------
  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  void next() { at_ = std::min(at_ + 1, tokens_.size() - 1); }
  bool sees(std::string_view op) const {
    return current().kind == TokenKind::kOperator && current().text == op;
  }
  bool sees_name(std::string_view name) const {
    return current().kind == TokenKind::kName && current().text == name;
  }
  bool take(std::string_view op) {
    const bool found = sees(op);
    if (found) next();
    return found;
  }
  bool take_name(std::string_view name) {
    const bool found = sees_name(name);
    if (found) next();
    return found;
  }

  std::unexpected<Error> error(std::string_view message, int line,
                               ErrorCode code = ErrorCode::kInvalidFile) const {
    return fail(code, fmt::format("line {}: {}", line, message));
  }
  std::unexpected<Error> unsupported(std::string_view what, int line) const {
    return error(fmt::format("{} is not supported", what), line, ErrorCode::kUnsupported);
  }
  std::unexpected<Error> expected(std::string_view what) const {
    const Token& token = current();
    const std::string found = token.kind == TokenKind::kEnd    ? "the end of the template"
                              : token.kind == TokenKind::kText ? "text"
                                                               : fmt::format("'{}'", token.text);
    return error(fmt::format("expected {}, found {}", what, found), token.line);
  }
  Status expect(std::string_view op) {
    if (take(op)) return {};
    return expected(fmt::format("'{}'", op));
  }
  Status expect_end(TokenKind kind) {
    if (current().kind != kind) return expected(kind == TokenKind::kTagEnd ? "'%}'" : "'}}'");
    next();
    return {};
  }
  Result<std::string> expect_name() {
    if (current().kind != TokenKind::kName) return expected("a name");
    std::string name = current().text;
    next();
    return name;
  }

  // --- Nodes -------------------------------------------------------------------------------------
  Result<NodeId> add(Node node) {
    for (const NodeId child : node.children) {
      if (child != kNone) node.depth = std::max(node.depth, ast_[child].depth + 1);
    }
    if (node.depth > kMaxDepth) return error("the template nests too deeply", node.line);
    ast_.nodes.push_back(std::move(node));
    return static_cast<NodeId>(ast_.nodes.size()) - 1;
  }
  Result<NodeId> add(NodeKind kind, int line, std::vector<NodeId> children) {
    return add({.kind = kind, .line = line, .children = std::move(children)});
  }
  Result<NodeId> constant(Value value, int line) {
    return add({.kind = NodeKind::kConstant, .line = line, .value = std::move(value)});
  }

  Status check_level() const {
    if (level_ <= kMaxNesting) return {};
    return error("the template nests too deeply", current().line);
  }

  // --- Statements --------------------------------------------------------------------------------
  // Statements up to a tag of one of these names, which is left to be read; up to the end of the
  // template without names.
  Result<NodeId> block(Names ends) {
    const Level level(level_);
    VOLTA_TRY(check_level());
    const int line = current().line;
    std::vector<NodeId> statements;
    while (true) {
      const Token& token = current();
      if (token.kind == TokenKind::kEnd) {
        if (ends.size() == 0) return add(NodeKind::kBlock, line, std::move(statements));
        return error(fmt::format("the block has no {{% {} %}}", *std::prev(ends.end())), line);
      }
      if (token.kind == TokenKind::kTagBegin && ahead().kind == TokenKind::kName &&
          one_of(ahead().text, ends)) {
        next();
        return add(NodeKind::kBlock, line, std::move(statements));
      }
      VOLTA_TRY(const NodeId made, statement());
      statements.push_back(made);
    }
  }
  // The body of a tag: from the tag's end to the next one of these.
  Result<NodeId> body(Names ends) {
    take(":");
    VOLTA_TRY(expect_end(TokenKind::kTagEnd));
    return block(ends);
  }
  // The same up to one end tag, which is read up to its name.
  Result<NodeId> whole_body(std::string_view end) {
    VOLTA_TRY(const NodeId id, body({end}));
    next();
    return id;
  }

  Result<NodeId> statement() {
    const Token token = current();
    next();
    if (token.kind == TokenKind::kText) {
      return add({.kind = NodeKind::kText, .line = token.line, .value = Value::text(token.text)});
    }
    if (token.kind == TokenKind::kPrintBegin) {
      VOLTA_TRY(const NodeId value, tuple());
      VOLTA_TRY(expect_end(TokenKind::kPrintEnd));
      return add(NodeKind::kPrint, token.line, {value});
    }
    VOLTA_TRY(const std::string name, expect_name());
    VOLTA_TRY(const NodeId made, tag(name, token.line));
    VOLTA_TRY(expect_end(TokenKind::kTagEnd));
    return made;
  }

  Result<NodeId> tag(std::string_view name, int line) {
    if (name == "if") return parse_if(line);
    if (name == "for") return parse_for(line);
    if (name == "set") return parse_set(line);
    if (name == "macro") return parse_macro(line);
    if (name == "with") return parse_with(line);
    if (name == "filter") return parse_filter_block(line);
    if (name == "generation") {
      const int loops = std::exchange(loops_, 0);
      VOLTA_TRY(const NodeId inner, whole_body("endgeneration"));
      loops_ = loops;
      return add(NodeKind::kScope, line, {inner});
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) return error(fmt::format("'{}' outside of a loop", name), line);
      return add(name == "break" ? NodeKind::kBreak : NodeKind::kContinue, line, {});
    }
    if (name.starts_with("end") || name == "else" || name == "elif") {
      return error(fmt::format("{{% {} %}} has nothing to belong to", name), line);
    }
    return unsupported(fmt::format("the tag {{% {} %}}", name), line);
  }

  Result<NodeId> parse_if(int line) {
    std::vector<NodeId> children;
    while (true) {
      VOLTA_TRY(const NodeId test, tuple({}, false));
      VOLTA_TRY(const NodeId then, body({"elif", "else", "endif"}));
      children.push_back(test);
      children.push_back(then);
      if (take_name("elif")) continue;
      if (take_name("else")) {
        VOLTA_TRY(const NodeId otherwise, whole_body("endif"));
        children.push_back(otherwise);
      } else {
        next();
      }
      return add(NodeKind::kIf, line, std::move(children));
    }
  }

  Result<NodeId> parse_for(int line) {
    VOLTA_TRY(const NodeId target, parse_target(false));
    if (!take_name("in")) return expected("'in'");
    VOLTA_TRY(const NodeId sequence, tuple({"recursive"}, false));
    NodeId filter = kNone;
    if (take_name("if")) {
      VOLTA_TRY(filter, expression());
    }
    if (sees_name("recursive")) return unsupported("a recursive loop", current().line);
    ++loops_;
    VOLTA_TRY(const NodeId inner, body({"else", "endfor"}));
    --loops_;
    NodeId otherwise = kNone;
    if (take_name("else")) {
      VOLTA_TRY(otherwise, whole_body("endfor"));
    } else {
      next();
    }
    return add(NodeKind::kFor, line, {target, sequence, filter, inner, otherwise});
  }

  Result<NodeId> parse_set(int line) {
    VOLTA_TRY(const NodeId target, parse_target(true));
    if (take("=")) {
      VOLTA_TRY(const NodeId value, tuple());
      return add(NodeKind::kSet, line, {target, value});
    }
    NodeId filter = kNone;
    if (sees("|")) {
      VOLTA_TRY(filter, filters(kNone));
    }
    VOLTA_TRY(const NodeId inner, whole_body("endset"));
    return add(NodeKind::kSetBlock, line, {target, inner, filter});
  }

  Result<NodeId> parse_macro(int line) {
    Node macro{.kind = NodeKind::kMacro, .line = line};
    VOLTA_TRY(macro.name, expect_name());
    VOLTA_TRY(expect("("));
    macro.children.push_back(kNone);
    while (!sees(")")) {
      if (!macro.names.empty()) VOLTA_TRY(expect(","));
      VOLTA_TRY(std::string name, expect_name());
      macro.names.push_back(std::move(name));
      if (take("=")) {
        VOLTA_TRY(const NodeId value, expression());
        macro.children.push_back(value);
      } else if (macro.children.size() > 1) {
        return error("a parameter without a default value follows one with it", line);
      }
    }
    next();
    const int loops = std::exchange(loops_, 0);
    const std::size_t first = ast_.nodes.size();
    VOLTA_TRY(macro.children.front(), whole_body("endmacro"));
    loops_ = loops;
    for (std::size_t i = first; i < ast_.nodes.size(); ++i) {
      const Node& node = ast_.nodes[i];
      if (node.kind != NodeKind::kName || !one_of(node.name, {"varargs", "kwargs", "caller"})) {
        continue;
      }
      if (std::ranges::find(macro.names, node.name) == macro.names.end()) {
        return unsupported(fmt::format("'{}' in a macro", node.name), node.line);
      }
    }
    return add(std::move(macro));
  }

  Result<NodeId> parse_with(int line) {
    std::vector<NodeId> children;
    while (current().kind != TokenKind::kTagEnd) {
      if (!children.empty()) VOLTA_TRY(expect(","));
      VOLTA_TRY(const NodeId target, parse_target(false));
      VOLTA_TRY(expect("="));
      VOLTA_TRY(const NodeId value, expression());
      children.push_back(target);
      children.push_back(value);
    }
    VOLTA_TRY(const NodeId inner, whole_body("endwith"));
    children.push_back(inner);
    return add(NodeKind::kWith, line, std::move(children));
  }

  Result<NodeId> parse_filter_block(int line) {
    VOLTA_TRY(NodeId filter, one_filter(kNone));
    if (sees("|")) {
      VOLTA_TRY(filter, filters(filter));
    }
    VOLTA_TRY(const NodeId inner, whole_body("endfilter"));
    return add(NodeKind::kFilterBlock, line, {filter, inner});
  }

  // What is assigned to: a name, several, or (of set) a namespace's member.
  Result<NodeId> parse_target(bool with_member) {
    const int line = current().line;
    std::vector<NodeId> targets;
    bool several = false;
    while (true) {
      if (several && (sees("=") || sees_name("in") || sees(")"))) break;
      VOLTA_TRY(const NodeId target, single_target(with_member));
      targets.push_back(target);
      if (!take(",")) break;
      several = true;
    }
    if (!several) return targets.front();
    return add(NodeKind::kTuple, line, std::move(targets));
  }
  Result<NodeId> single_target(bool with_member) {
    const Level level(level_);
    VOLTA_TRY(check_level());
    const int line = current().line;
    if (take("(")) {
      VOLTA_TRY(const NodeId inner, parse_target(with_member));
      VOLTA_TRY(expect(")"));
      return inner;
    }
    VOLTA_TRY(std::string name, expect_name());
    if (one_of(name, {"true", "false", "none", "True", "False", "None"})) {
      return error(fmt::format("'{}' cannot be assigned to", name), line);
    }
    if (name == "loop") return unsupported("assigning to 'loop'", line);
    if (with_member && take(".")) {
      VOLTA_TRY(std::string member, expect_name());
      return add({.kind = NodeKind::kMember,
                  .line = line,
                  .name = std::move(name),
                  .names = {std::move(member)}});
    }
    return add({.kind = NodeKind::kName, .line = line, .name = std::move(name)});
  }

  // --- Expressions -------------------------------------------------------------------------------
  // Expressions with commas between them are a tuple.
  Result<NodeId> tuple(Names ends = {}, bool with_condition = true, bool in_brackets = false) {
    const int line = current().line;
    std::vector<NodeId> items;
    bool is_tuple = false;
    while (true) {
      const TokenKind kind = current().kind;
      if (kind == TokenKind::kPrintEnd || kind == TokenKind::kTagEnd || sees(")") ||
          (kind == TokenKind::kName && one_of(current().text, ends))) {
        break;
      }
      VOLTA_TRY(const NodeId item, with_condition ? expression() : parse_or());
      items.push_back(item);
      if (!take(",")) break;
      is_tuple = true;
    }
    if (!is_tuple && !items.empty()) return items.front();
    if (!is_tuple && !in_brackets) return expected("an expression");
    return add(NodeKind::kTuple, line, std::move(items));
  }

  Result<NodeId> expression() {
    const Level level(level_);
    VOLTA_TRY(check_level());
    const int line = current().line;
    VOLTA_TRY(NodeId value, parse_or());
    while (take_name("if")) {
      VOLTA_TRY(const NodeId test, parse_or());
      NodeId otherwise = kNone;
      if (take_name("else")) {
        VOLTA_TRY(otherwise, expression());
      }
      VOLTA_TRY(value, add(NodeKind::kCondition, line, {test, value, otherwise}));
    }
    return value;
  }

  // Operands of the same operator, read by `operand`, become one node.
  template <typename Take, typename Operand>
  Result<NodeId> chain(NodeKind kind, Take&& take_operator, Operand&& operand) {
    const int line = current().line;
    VOLTA_TRY(const NodeId first, operand());
    std::vector<NodeId> operands = {first};
    while (take_operator()) {
      VOLTA_TRY(const NodeId more, operand());
      operands.push_back(more);
    }
    if (operands.size() == 1) return first;
    return add(kind, line, std::move(operands));
  }
  Result<NodeId> parse_or() {
    return chain(NodeKind::kOr, [&] { return take_name("or"); }, [&] { return parse_and(); });
  }
  Result<NodeId> parse_and() {
    return chain(NodeKind::kAnd, [&] { return take_name("and"); }, [&] { return parse_not(); });
  }
  Result<NodeId> parse_not() {
    const int line = current().line;
    if (!take_name("not")) return parse_compare();
    const Level level(level_);
    VOLTA_TRY(check_level());
    VOLTA_TRY(const NodeId operand, parse_not());
    return add(NodeKind::kNot, line, {operand});
  }

  std::optional<Operator> take_comparison() {
    constexpr std::array<std::pair<std::string_view, Operator>, 6> kOperators = {
        {{"==", Operator::kEqual},
         {"!=", Operator::kNotEqual},
         {"<=", Operator::kLessEqual},
         {">=", Operator::kGreaterEqual},
         {"<", Operator::kLess},
         {">", Operator::kGreater}}};
    for (const auto& [name, op] : kOperators) {
      if (take(name)) return op;
    }
    if (take_name("in")) return Operator::kIn;
    if (sees_name("not") && ahead().kind == TokenKind::kName && ahead().text == "in") {
      next();
      next();
      return Operator::kNotIn;
    }
    return std::nullopt;
  }
  Result<NodeId> parse_compare() {
    Node node{.kind = NodeKind::kCompare, .line = current().line};
    VOLTA_TRY(const NodeId first, parse_sum());
    node.children.push_back(first);
    while (const auto op = take_comparison()) {
      node.operators.push_back(*op);
      VOLTA_TRY(const NodeId operand, parse_sum());
      node.children.push_back(operand);
    }
    if (node.operators.empty()) return first;
    return add(std::move(node));
  }

  using Level2 = std::initializer_list<std::pair<std::string_view, Operator>>;
  template <typename Operand>
  Result<NodeId> binary(Level2 operators, Operand&& operand) {
    VOLTA_TRY(NodeId left, operand());
    while (true) {
      const int line = current().line;
      const auto* const found =
          std::ranges::find_if(operators, [&](const auto& entry) { return sees(entry.first); });
      if (found == operators.end()) return left;
      next();
      VOLTA_TRY(const NodeId right, operand());
      VOLTA_TRY(left, add({.kind = NodeKind::kBinary,
                           .line = line,
                           .children = {left, right},
                           .operators = {found->second}}));
    }
  }
  Result<NodeId> parse_sum() {
    return binary({{"+", Operator::kAdd}, {"-", Operator::kSubtract}},
                  [&] { return parse_concat(); });
  }
  Result<NodeId> parse_concat() {
    return chain(NodeKind::kConcat, [&] { return take("~"); }, [&] { return parse_product(); });
  }
  Result<NodeId> parse_product() {
    return binary({{"*", Operator::kMultiply},
                   {"/", Operator::kDivide},
                   {"//", Operator::kFloorDivide},
                   {"%", Operator::kModulo}},
                  [&] { return parse_power(); });
  }
  Result<NodeId> parse_power() {
    return binary({{"**", Operator::kPower}}, [&] { return parse_unary(true); });
  }

  Result<NodeId> parse_unary(bool with_filters) {
    const Level level(level_);
    VOLTA_TRY(check_level());
    const int line = current().line;
    NodeId value = kNone;
    if (sees("-") || sees("+")) {
      const NodeKind kind = sees("-") ? NodeKind::kNegate : NodeKind::kPositive;
      next();
      VOLTA_TRY(const NodeId operand, parse_unary(false));
      VOLTA_TRY(value, add(kind, line, {operand}));
    } else {
      VOLTA_TRY(value, primary());
    }
    VOLTA_TRY(value, postfix(value));
    if (!with_filters) return value;
    while (true) {
      if (sees("|")) {
        VOLTA_TRY(value, filters(value));
      } else if (sees_name("is")) {
        VOLTA_TRY(value, test(value));
      } else if (sees("(")) {
        VOLTA_TRY(value, call(value));
      } else {
        return value;
      }
    }
  }

  Result<NodeId> primary() {
    const Token token = current();
    const std::size_t here = at_;
    next();
    switch (token.kind) {
      case TokenKind::kName:
        if (one_of(token.text, {"true", "True"})) return constant(Value(true), token.line);
        if (one_of(token.text, {"false", "False"})) return constant(Value(false), token.line);
        if (one_of(token.text, {"none", "None"})) return constant(Value(None{}), token.line);
        return add({.kind = NodeKind::kName, .line = token.line, .name = token.text});
      case TokenKind::kString: {
        std::string text = token.text;
        for (; current().kind == TokenKind::kString; next()) text += current().text;
        return constant(Value::text(text), token.line);
      }
      case TokenKind::kInteger:
        return constant(Value(token.integer), token.line);
      case TokenKind::kFloat:
        return constant(Value(token.real), token.line);
      case TokenKind::kOperator:
        if (token.text == "(") {
          VOLTA_TRY(const NodeId inner, tuple({}, true, true));
          VOLTA_TRY(expect(")"));
          return inner;
        }
        if (token.text == "[") return list(token.line);
        if (token.text == "{") return dict(token.line);
        break;
      default:
        break;
    }
    at_ = here;
    return expected("an expression");
  }

  Result<NodeId> list(int line) {
    std::vector<NodeId> items;
    while (!sees("]")) {
      if (!items.empty()) VOLTA_TRY(expect(","));
      if (sees("]")) break;
      VOLTA_TRY(const NodeId item, expression());
      items.push_back(item);
    }
    next();
    return add(NodeKind::kList, line, std::move(items));
  }
  Result<NodeId> dict(int line) {
    std::vector<NodeId> members;
    while (!sees("}")) {
      if (!members.empty()) VOLTA_TRY(expect(","));
      if (sees("}")) break;
      VOLTA_TRY(const NodeId key, expression());
      VOLTA_TRY(expect(":"));
      VOLTA_TRY(const NodeId value, expression());
      members.push_back(key);
      members.push_back(value);
    }
    next();
    return add(NodeKind::kDict, line, std::move(members));
  }

  Result<NodeId> postfix(NodeId value) {
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

  Result<NodeId> subscript(NodeId object) {
    const int line = current().line;
    if (take(".")) {
      const Token token = current();
      next();
      if (token.kind == TokenKind::kName) {
        return add(
            {.kind = NodeKind::kAttribute, .line = line, .name = token.text, .children = {object}});
      }
      if (token.kind != TokenKind::kInteger) return error("expected a name after '.'", line);
      VOLTA_TRY(const NodeId index, constant(Value(token.integer), line));
      return add(NodeKind::kItem, line, {object, index});
    }
    next();
    if (sees("]")) return expected("an index");
    VOLTA_TRY(const NodeId index, slice_or_index());
    if (sees(",")) return unsupported("an index with several parts", line);
    VOLTA_TRY(expect("]"));
    return add(NodeKind::kItem, line, {object, index});
  }
  Result<NodeId> slice_or_index() {
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

  // Appends the arguments between parentheses.
  Status arguments(Node& node) {
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
  Result<NodeId> call(NodeId function) {
    Node node{.kind = NodeKind::kCall, .line = current().line, .children = {function}};
    VOLTA_TRY(arguments(node));
    return add(std::move(node));
  }

  Result<std::string> dotted_name() {
    VOLTA_TRY(std::string name, expect_name());
    while (take(".")) {
      VOLTA_TRY(const std::string more, expect_name());
      name += "." + more;
    }
    return name;
  }
  Result<NodeId> filters(NodeId value) {
    while (take("|")) {
      VOLTA_TRY(value, one_filter(value));
    }
    return value;
  }
  Result<NodeId> one_filter(NodeId value) {
    Node node{.kind = NodeKind::kFilter, .line = current().line, .children = {value}};
    VOLTA_TRY(node.name, dotted_name());
    if (sees("(")) VOLTA_TRY(arguments(node));
    return add(std::move(node));
  }

  Result<NodeId> test(NodeId value) {
    const int line = current().line;
    next();
    const bool negated = take_name("not");
    Node node{.kind = NodeKind::kTest, .line = line, .children = {value}};
    VOLTA_TRY(node.name, dotted_name());
    const Token& token = current();
    const bool argument =
        (token.kind == TokenKind::kName && !one_of(token.text, {"else", "or", "and"})) ||
        token.kind == TokenKind::kString || token.kind == TokenKind::kInteger ||
        token.kind == TokenKind::kFloat || sees("[") || sees("{");
    if (sees("(")) {
      VOLTA_TRY(arguments(node));
    } else if (argument) {
      if (sees_name("is")) return error("tests with 'is' cannot be chained", line);
      const Level level(level_);
      VOLTA_TRY(check_level());
      VOLTA_TRY(NodeId operand, primary());
      VOLTA_TRY(operand, postfix(operand));
      node.children.push_back(operand);
    }
    VOLTA_TRY(const NodeId made, add(std::move(node)));
    if (!negated) return made;
    return add(NodeKind::kNot, line, {made});
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int level_ = 0;
  int loops_ = 0;  // Around what is being read, up to a macro.
  Ast ast_;
};

}  // namespace

Result<Ast> parse(std::string_view source) {
  if (source.size() > kMaxSource) {
    return fail(
        ErrorCode::kInvalidFile,
        fmt::format("{} bytes are more than a template may have ({})", source.size(), kMaxSource));
  }
  VOLTA_TRY(std::vector<Token> tokens, tokenize(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace volta::jinja
