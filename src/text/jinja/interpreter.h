// Runs a parsed template: statements, names and their scopes, macros and loops. Operations on
// values are in operators.h and builtins.h.
#pragma once

#include <ctime>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/budget.h"

namespace volta::jinja {

/// The inputs of a template.
struct Environment {
  std::vector<std::pair<std::string, Value>> variables{};
  std::tm now{};  ///< Local time, for strftime_now.
  Limits limits{};
  std::function<bool()> interrupted{};  ///< Stops when it returns true; empty: never stops.
};

/// Renders the template to text, in which text from the variables is quoted. kInvalidArgument, with
/// the template's message, when it calls raise_exception; kUnsupported for unsupported parts of the
/// language; kInvalidFile for other errors, including a spent budget; kInterrupted. Messages
/// contain the line.
Result<QuotedText> render(const Ast& ast, const Environment& environment);

}  // namespace volta::jinja
