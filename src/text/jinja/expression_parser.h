// Parses expressions of the template language from tokens to nodes. The parser of statements
// (parser.cc) derives from it. Knows nothing of statements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace volta::jinja {

class ExpressionParser {
 protected:
  using Names = std::initializer_list<std::string_view>;

  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  static bool one_of(std::string_view name, Names names) {
    return std::ranges::find(names, name) != names.end();
  }

  // Tokens.
  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  void next() { at_ = at_ + 1 < tokens_.size() ? at_ + 1 : at_; }
  /// Whether this operator or name comes next; take() also consumes it.
  bool sees(std::string_view word) const {
    const bool is_word =
        current().kind == TokenKind::kOperator || current().kind == TokenKind::kName;
    return is_word && current().text == word;
  }
  bool take(std::string_view word) {
    const bool found = sees(word);
    if (found) next();
    return found;
  }
  Status expect(std::string_view op);
  Result<std::string> expect_name();

  // Errors.
  static std::unexpected<Error> error(std::string_view message, int line,
                                      ErrorCode code = ErrorCode::kInvalidFile);
  static std::unexpected<Error> unsupported(std::string_view what, int line);
  std::unexpected<Error> expected(std::string_view what) const;
  /// An error if brackets and blocks are nested too deeply for the parser's stack.
  Status check_level() const;

  // Nodes.
  Result<NodeId> add(Node node);
  Result<NodeId> add(NodeKind kind, int line, std::vector<NodeId> children);

  /// Parses one expression, or a tuple of several with commas between them, up to a name in `ends`.
  Result<NodeId> tuple(Names ends = {}, bool with_condition = true, bool in_brackets = false);
  Result<NodeId> expression();

  Ast ast_;
  int level_ = 0;

 private:
  Result<NodeId> constant(Value value, int line);
  Result<NodeId> parse_logic(bool is_or);
  Result<NodeId> parse_not();
  Result<NodeId> parse_operators(int level);
  const struct OperatorRow* take_operator(int level);
  Result<NodeId> parse_unary(bool with_filters);
  Result<NodeId> primary();
  Result<NodeId> items(NodeKind kind, std::string_view close, int line);
  Result<NodeId> postfix(NodeId value);
  Result<NodeId> subscript(NodeId object);
  Result<NodeId> slice_or_index();
  Status arguments(Node& node);
  Result<NodeId> call(NodeId function);
  Result<NodeId> filter(NodeId value);
  Result<NodeId> test(NodeId value);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

}  // namespace volta::jinja
