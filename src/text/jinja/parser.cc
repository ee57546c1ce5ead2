// Parses the statements of a template from tokens to nodes.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/expression_parser.h"

namespace volta::jinja {
namespace {

constexpr std::size_t kMaxSource = 1 << 20;  // Bytes. Templates of models have a few thousand.

class Parser : private ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  Result<Ast> run() {
    VOLTA_TRY(ast_.root, block({}));
    return std::move(ast_);
  }

 private:
  Status expect_end(TokenKind kind) {
    if (current().kind != kind) return expected(kind == TokenKind::kTagEnd ? "'%}'" : "'}}'");
    next();
    return {};
  }

  // Parses statements up to a tag with one of these names, which is not consumed; without names, up
  // to the end of the template.
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
      VOLTA_TRY(const NodeId node, statement());
      statements.push_back(node);
    }
  }
  // Parses the body of a tag: from the tag's end to the next tag with one of these names.
  Result<NodeId> body(Names ends) {
    take(":");
    VOLTA_TRY(expect_end(TokenKind::kTagEnd));
    return block(ends);
  }
  // The same for one end tag, which is consumed up to and including its name.
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
    VOLTA_TRY(const NodeId node, tag(name, token.line));
    VOLTA_TRY(expect_end(TokenKind::kTagEnd));
    return node;
  }

  Result<NodeId> tag(std::string_view name, int line) {
    if (name == "if") return parse_if(line);
    if (name == "for") return parse_for(line);
    if (name == "set") return parse_set(line);
    if (name == "macro") return parse_macro(line);
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
    do {
      VOLTA_TRY(const NodeId test, tuple({}, false));
      VOLTA_TRY(const NodeId then, body({"elif", "else", "endif"}));
      children.push_back(test);
      children.push_back(then);
    } while (take("elif"));
    if (take("else")) {
      VOLTA_TRY(const NodeId otherwise, whole_body("endif"));
      children.push_back(otherwise);
    } else {
      next();
    }
    return add(NodeKind::kIf, line, std::move(children));
  }

  Result<NodeId> parse_for(int line) {
    VOLTA_TRY(const NodeId target, parse_target(false));
    if (!take("in")) return expected("'in'");
    VOLTA_TRY(const NodeId sequence, tuple({"recursive"}, false));
    NodeId condition = kNone;
    if (take("if")) {
      VOLTA_TRY(condition, expression());
    }
    if (sees("recursive")) return unsupported("a recursive loop", current().line);
    ++loops_;
    VOLTA_TRY(const NodeId inner, body({"else", "endfor"}));
    --loops_;
    NodeId otherwise = kNone;
    if (take("else")) {
      VOLTA_TRY(const NodeId inside, whole_body("endfor"));
      VOLTA_TRY(otherwise, add(NodeKind::kScope, line, {inside}));
    } else {
      next();
    }
    return add(NodeKind::kFor, line, {target, sequence, condition, inner, otherwise});
  }

  Result<NodeId> parse_set(int line) {
    VOLTA_TRY(const NodeId target, parse_target(true));
    if (take("=")) {
      VOLTA_TRY(const NodeId value, tuple());
      return add(NodeKind::kSet, line, {target, value});
    }
    if (sees("|")) return unsupported("a filter of a set block", line);
    VOLTA_TRY(const NodeId inner, whole_body("endset"));
    return add(NodeKind::kSetBlock, line, {target, inner});
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
    VOLTA_TRY(macro.children.front(), whole_body("endmacro"));
    loops_ = loops;
    return add(std::move(macro));
  }

  // Parses the target of an assignment: a name, several names, or (with set) a member of a
  // namespace.
  Result<NodeId> parse_target(bool with_member) {
    const int line = current().line;
    VOLTA_TRY(const NodeId first, single_target(with_member));
    if (!sees(",")) return first;
    std::vector<NodeId> targets = {first};
    while (take(",")) {
      if (sees("=") || sees("in")) break;
      VOLTA_TRY(const NodeId more, single_target(with_member));
      targets.push_back(more);
    }
    return add(NodeKind::kTuple, line, std::move(targets));
  }
  Result<NodeId> single_target(bool with_member) {
    const int line = current().line;
    if (sees("(")) return unsupported("a target in brackets", line);
    VOLTA_TRY(std::string name, expect_name());
    if (one_of(name, {"true", "false", "none", "True", "False", "None"})) {
      return error(fmt::format("'{}' cannot be assigned to", name), line);
    }
    if (name == "loop") return unsupported("assigning to 'loop'", line);
    if (!with_member || !take(".")) {
      return add({.kind = NodeKind::kName, .line = line, .name = std::move(name)});
    }
    VOLTA_TRY(std::string member, expect_name());
    return add({.kind = NodeKind::kMember,
                .line = line,
                .name = std::move(name),
                .names = {std::move(member)}});
  }

  int loops_ = 0;  // Nested loops here, within the current macro.
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
