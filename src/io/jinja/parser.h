// Reads a template into its nodes: Jinja's grammar, without what only makes sense among several
// templates.
#pragma once

#include <string_view>

#include "base/result.h"
#include "io/jinja/ast.h"

namespace volta::jinja {

/// kInvalidFile with the line for what is no template, kUnsupported for what Volta does not know.
Result<Ast> parse(std::string_view source);

}  // namespace volta::jinja
