// Jinja's filters (value|name(...)) and tests (value is name(...)).
#pragma once

#include <string_view>

#include "io/jinja/arguments.h"
#include "io/jinja/value.h"

namespace volta::jinja {

/// kUnsupported for a filter that Volta does not have, kInvalidFile for a value it does not take.
Result<Value> apply_filter(Budget& budget, std::string_view name, const Value& input,
                           const Arguments& arguments);
Result<bool> apply_test(Budget& budget, std::string_view name, const Value& input,
                        const Arguments& arguments);
bool is_filter(std::string_view name);
bool is_test(std::string_view name);

}  // namespace volta::jinja
