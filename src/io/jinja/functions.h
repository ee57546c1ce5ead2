// The functions that every chat template can call, but for macros and methods.
#pragma once

#include <ctime>
#include <string_view>

#include "io/jinja/arguments.h"
#include "io/jinja/value.h"

namespace volta::jinja {

/// range, dict, namespace, raise_exception, strftime_now.
bool is_function(std::string_view name);
/// Names that Jinja gives to every template and Volta does not know.
bool is_missing_function(std::string_view name);
/// kInvalidArgument is raise_exception's.
Result<Value> call_function(Budget& budget, std::string_view name, const Arguments& arguments,
                            const std::tm& now);

}  // namespace volta::jinja
