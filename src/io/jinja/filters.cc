#include "io/jinja/filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "io/jinja/filter_use.h"

namespace volta::jinja {
namespace {

struct Filter {
  std::string_view name;
  Result<Value> (*apply)(const Use&);
};
constexpr std::array kFilters = {
    Filter{"abs", filter_abs},           Filter{"attr", filter_attr},
    Filter{"batch", filter_batch},       Filter{"capitalize", filter_case},
    Filter{"count", filter_length},      Filter{"d", filter_default},
    Filter{"default", filter_default},   Filter{"dictsort", filter_dictsort},
    Filter{"e", filter_escape},          Filter{"escape", filter_escape},
    Filter{"first", filter_first},       Filter{"float", filter_float},
    Filter{"indent", filter_indent},     Filter{"int", filter_int},
    Filter{"items", filter_items},       Filter{"join", filter_join},
    Filter{"last", filter_first},        Filter{"length", filter_length},
    Filter{"list", filter_list},         Filter{"lower", filter_case},
    Filter{"map", filter_map},           Filter{"max", filter_extreme},
    Filter{"min", filter_extreme},       Filter{"reject", filter_select},
    Filter{"rejectattr", filter_select}, Filter{"replace", filter_replace},
    Filter{"reverse", filter_reverse},   Filter{"round", filter_round},
    Filter{"safe", filter_safe},         Filter{"select", filter_select},
    Filter{"selectattr", filter_select}, Filter{"sort", filter_sort},
    Filter{"string", filter_string},     Filter{"sum", filter_sum},
    Filter{"title", filter_case},        Filter{"tojson", filter_tojson},
    Filter{"trim", filter_trim},         Filter{"truncate", filter_truncate},
    Filter{"unique", filter_unique},     Filter{"upper", filter_case},
};

}  // namespace

bool is_filter(std::string_view name) {
  return std::ranges::find(kFilters, name, &Filter::name) != kFilters.end();
}

Result<Value> apply_filter(Budget& budget, std::string_view name, const Value& input,
                           const Arguments& arguments) {
  budget.step();
  VOLTA_TRY(budget.check());
  const auto* const filter = std::ranges::find(kFilters, name, &Filter::name);
  if (filter == kFilters.end()) {
    return fail(ErrorCode::kUnsupported, fmt::format("the filter '{}' is not supported", name));
  }
  return filter->apply({budget, name, input, arguments});
}

}  // namespace volta::jinja
