// What the files of filters share: one use of a filter, and the filters by their C++ names. Only
// for them; others ask filters.h.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "io/jinja/arguments.h"
#include "io/jinja/value.h"

namespace volta::jinja {

/// One use of a filter.
struct Use {
  Budget& budget;
  std::string_view name;
  const Value& input;
  const Arguments& arguments;

  Result<Parameters> bind(std::initializer_list<std::string_view> names,
                          std::size_t required = 0) const {
    return Parameters::bind(fmt::format("the filter '{}'", name), arguments, names, required);
  }
  std::unexpected<Error> bad(std::string_view message) const {
    return fail(ErrorCode::kInvalidFile, fmt::format("the filter '{}' {}", name, message));
  }
  std::unexpected<Error> unsupported(std::string_view message) const {
    return fail(ErrorCode::kUnsupported, fmt::format("the filter '{}' {}", name, message));
  }
  bool is_markup() const { return input.if_text() != nullptr && input.if_text()->markup; }
  /// The input as text; markup is refused, because what becomes of it would be markup, too.
  Result<Value> text() const {
    if (is_markup()) return unsupported("on 'safe' text is not supported");
    VOLTA_TRY(Value value, to_text(budget, input));
    budget.scan(value.if_string()->size());
    return value;
  }
};

/// What a filter made of a text, as value, or its error.
inline Result<Value> finish(const Use& use, const Value& origin, Result<std::string> text) {
  if (!text) return std::unexpected(std::move(text).error());
  return make_changed(use.budget, origin.if_text(), *text);
}

// Of text (text_filters.cc).
Result<Value> filter_case(const Use& use);
Result<Value> filter_trim(const Use& use);
Result<Value> filter_string(const Use& use);
Result<Value> filter_safe(const Use& use);
Result<Value> filter_escape(const Use& use);
Result<Value> filter_replace(const Use& use);
Result<Value> filter_indent(const Use& use);
Result<Value> filter_truncate(const Use& use);
Result<Value> filter_tojson(const Use& use);
// Of numbers (number_filters.cc).
Result<Value> filter_int(const Use& use);
Result<Value> filter_float(const Use& use);
Result<Value> filter_abs(const Use& use);
Result<Value> filter_round(const Use& use);
// Of sequences (sequence_filters.cc).
Result<Value> filter_sort(const Use& use);
Result<Value> filter_dictsort(const Use& use);
Result<Value> filter_unique(const Use& use);
Result<Value> filter_extreme(const Use& use);
Result<Value> filter_sum(const Use& use);
Result<Value> filter_join(const Use& use);
Result<Value> filter_first(const Use& use);
Result<Value> filter_length(const Use& use);
Result<Value> filter_list(const Use& use);
Result<Value> filter_reverse(const Use& use);
Result<Value> filter_items(const Use& use);
Result<Value> filter_batch(const Use& use);
Result<Value> filter_default(const Use& use);
Result<Value> filter_attr(const Use& use);
Result<Value> filter_map(const Use& use);
Result<Value> filter_select(const Use& use);

}  // namespace volta::jinja
