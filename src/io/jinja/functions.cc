#include "io/jinja/functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace volta::jinja {
namespace {

constexpr std::int64_t kMaxRange = 100'000;  // That of Jinja's sandbox.

constexpr std::array<std::string_view, 5> kFunctions = {"range", "dict", "namespace",
                                                        "raise_exception", "strftime_now"};
constexpr std::array<std::string_view, 6> kMissing = {"cycler", "joiner", "lipsum",
                                                      "self",   "super",  "caller"};

std::unexpected<Error> bad(std::string message) {
  return fail(ErrorCode::kInvalidFile, std::move(message));
}

Result<Value> range(Budget& budget, const Arguments& arguments) {
  VOLTA_TRY(const auto p, Parameters::bind("range", arguments, {"start", "stop", "step"}, 1));
  if (!arguments.named.empty()) return bad("range takes no named arguments");
  VOLTA_TRY(const std::int64_t first, p.integer(0, 0));
  VOLTA_TRY(const std::int64_t second, p.integer(1, 0));
  VOLTA_TRY(const std::int64_t step, p.integer(2, 1));
  const bool single = p.find(1) == nullptr;
  const std::int64_t start = single ? 0 : first, stop = single ? first : second;
  if (step == 0) return bad("range: the step is 0");
  std::vector<Value> items;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<std::int64_t>(items.size()) == kMaxRange) {
      return bad(fmt::format("range: more than {} items", kMaxRange));
    }
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return make_sequence(budget, SequenceKind::kRange, std::move(items));
}

// The members that dict(...) and namespace(...) are given: of a dict, and by name.
Result<std::vector<std::pair<Value, Value>>> members(Budget& budget, std::string_view what,
                                                     const Arguments& arguments) {
  std::vector<std::pair<Value, Value>> list;
  if (arguments.positional.size() > 1) return bad(fmt::format("{} takes one dict", what));
  if (!arguments.positional.empty()) {
    const Dict* dict = arguments.positional.front().if_dict();
    if (dict == nullptr) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{} of anything but a dict is not supported", what));
    }
    budget.step(dict->members.size());
    VOLTA_TRY(budget.check());
    list = dict->members;
  }
  for (const auto& [name, value] : arguments.named) list.emplace_back(Value::text(name), value);
  return list;
}

Result<Value> make_namespace(Budget& budget, const Arguments& arguments) {
  VOLTA_TRY(const auto list, members(budget, "namespace", arguments));
  auto names = std::make_shared<Namespace>();
  for (const auto& [key, value] : list) {
    VOLTA_TRY(check_storable(value));
    const std::string* name = key.if_string();
    if (name == nullptr || name->starts_with("_")) {
      return bad("namespace: names begin with a letter");
    }
    budget.search(names->members.size(), name->size());
    budget.make_many(name->size() + 2 * sizeof(Value), 1);
    VOLTA_TRY(budget.check());
    const auto known =
        std::ranges::find(names->members, *name, &std::pair<std::string, Value>::first);
    if (known != names->members.end()) {
      known->second = value;
    } else {
      names->members.emplace_back(*name, value);
    }
  }
  return Value(std::move(names));
}

Result<Value> strftime_now(Budget& budget, const Arguments& arguments, const std::tm& now) {
  VOLTA_TRY(const auto p, Parameters::bind("strftime_now", arguments, {"format"}, 1));
  VOLTA_TRY(const std::string_view format, p.text_or(0, ""));
  budget.scan(format.size());
  VOLTA_TRY(budget.check());
  std::string pattern;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      pattern += format[i];
      continue;
    }
    const char c = format[++i];
    constexpr std::string_view kKnown = "aAbBcdDeFhHIjklmMnpPrRStTuUVwWxXyYGg%-";
    if (c == 'Z' || c == 'z') continue;  // Python's local time does not know its zone.
    if (kKnown.find(c) == std::string_view::npos) {
      return fail(ErrorCode::kUnsupported, fmt::format("strftime_now: '%{}' is not supported", c));
    }
    pattern += {'%', c};
  }
  if (pattern.empty()) return Value::text("");
  if (pattern.size() > 256) return bad("strftime_now: the format is too long");
  std::array<char, 4096> text{};
  const std::size_t size = std::strftime(text.data(), text.size(), pattern.c_str(), &now);
  return make_changed(budget, p.find(0)->if_text(), std::string_view(text.data(), size));
}

}  // namespace

bool is_function(std::string_view name) {
  return std::ranges::find(kFunctions, name) != kFunctions.end();
}
bool is_missing_function(std::string_view name) {
  return std::ranges::find(kMissing, name) != kMissing.end();
}

Result<Value> call_function(Budget& budget, std::string_view name, const Arguments& arguments,
                            const std::tm& now) {
  if (name == "range") return range(budget, arguments);
  if (name == "namespace") return make_namespace(budget, arguments);
  if (name == "strftime_now") return strftime_now(budget, arguments, now);
  if (name == "dict") {
    VOLTA_TRY(auto list, members(budget, "dict", arguments));
    return make_dict(budget, std::move(list));
  }
  VOLTA_TRY(const auto p, Parameters::bind("raise_exception", arguments, {"message"}, 1));
  VOLTA_TRY(const Value message, to_text(budget, *p.find(0)));
  return fail(ErrorCode::kInvalidArgument, *message.if_string());
}

}  // namespace volta::jinja
