// Runs a parsed template: statements, names and their scopes, macros and loops. What happens to
// values is in operators.h and filters.h.
#pragma once

#include <ctime>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/budget.h"

namespace volta::jinja {

/// What a template is given.
struct Environment {
  std::vector<std::pair<std::string, Value>> variables{};
  std::tm now{};  ///< Local time, for strftime_now.
  Limits limits{};
  std::function<bool()> interrupted{};  ///< Asked now and then whether to stop; empty: never.
};

/// The text that the template makes, with what it quotes of the variables. kInvalidArgument with
/// the template's own words when it calls raise_exception; kUnsupported for what Volta does not
/// know; kInvalidFile for other errors, among them a spent budget; kInterrupted. Messages name the
/// line.
Result<QuotedText> render(const Ast& ast, const Environment& environment);

}  // namespace volta::jinja
