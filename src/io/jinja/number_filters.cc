// Filters that read, round and convert numbers.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "io/jinja/filter_use.h"
#include "io/jinja/filters.h"
#include "io/jinja/json_text.h"
#include "io/jinja/operators.h"
#include "io/jinja/text.h"

namespace volta::jinja {
namespace {

// What Python's float() reads; nothing when it is no number.
std::optional<double> read_float(std::string_view text) {
  text = strip(text, true, true);
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](std::size_t at) {
      return at < text.size() && text[at] >= '0' && text[at] <= '9';
    };
    if (text[i] == '_' && i > 0 && digit(i - 1) && digit(i + 1)) continue;
    plain += text[i];
  }
  std::string_view body = plain;
  if (body.starts_with('+')) body.remove_prefix(1);
  if (body.starts_with("+") || (plain.starts_with('+') && body.starts_with('-'))) return {};
  double value = 0.0;
  const auto* const last = std::to_address(body.end());
  const auto parsed = std::from_chars(std::to_address(body.begin()), last, value);
  if (body.empty() || parsed.ptr != last || body.ends_with(')')) return {};
  if (parsed.ec == std::errc()) return value;
  // Out of range: as large or as small as can be.
  const std::size_t exponent = body.find_first_of("eE");
  const bool tiny =
      exponent != std::string_view::npos && body.substr(exponent + 1).starts_with('-');
  const double magnitude = tiny ? 0.0 : HUGE_VAL;
  return body.starts_with('-') ? -magnitude : magnitude;
}

// A double as Python's int() cuts it; nothing when it is no number. An integer beyond 64 bits is
// refused.
Result<std::optional<Value>> whole(const Use& use, double number) {
  if (!std::isfinite(number)) return std::nullopt;
  const double cut = std::trunc(number);
  if (std::abs(cut) >= 9.2e18) return use.unsupported("makes an integer beyond 64 bits");
  return Value(static_cast<std::int64_t>(cut));
}

}  // namespace

Result<Value> filter_int(const Use& use) {
  VOLTA_TRY(const auto p, use.bind({"default", "base"}));
  VOLTA_TRY(const std::int64_t base, p.integer(1, 10));
  if (base != 10) return use.unsupported("with another base than 10 is not supported");
  Value fallback = p.find(0) == nullptr ? Value(std::int64_t{0}) : *p.find(0);
  std::int64_t number = 0;
  if (use.input.as_int(number)) return Value(number);
  std::optional<double> real;
  if (const double* given = use.input.if_double()) {
    if (std::isinf(*given)) return use.bad("cannot take an infinity");
    real = *given;
  } else if (const std::string* text = use.input.if_string()) {
    use.budget.scan(text->size());
    real = read_float(*text);
    // Digits that a double would round.
    std::string_view digits = strip(*text, true, true);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    const auto* const last = std::to_address(digits.end());
    const auto parsed = std::from_chars(std::to_address(digits.begin()), last, number);
    if (real && parsed.ptr == last && parsed.ec == std::errc()) return Value(number);
    if (real && std::abs(*real) >= 9e15 && digits.find_first_of(".eE") == std::string_view::npos &&
        std::isfinite(*real)) {
      return use.unsupported("on a number of so many digits is not supported");
    }
  } else if (const Undefined* undefined = use.input.if_undefined()) {
    return fail(ErrorCode::kInvalidFile,
                undefined->message == nullptr ? "undefined value" : *undefined->message);
  }
  if (!real) return fallback;
  VOLTA_TRY(const auto cut, whole(use, *real));
  return cut.value_or(fallback);
}

Result<Value> filter_float(const Use& use) {
  VOLTA_TRY(const auto p, use.bind({"default"}));
  if (use.input.is_number()) return Value(use.input.as_double());
  if (const Undefined* undefined = use.input.if_undefined()) {
    return fail(ErrorCode::kInvalidFile,
                undefined->message == nullptr ? "undefined value" : *undefined->message);
  }
  if (const std::string* text = use.input.if_string()) {
    use.budget.scan(text->size());
    if (const auto number = read_float(*text)) return Value(*number);
  }
  return p.find(0) == nullptr ? Value(0.0) : *p.find(0);
}

Result<Value> filter_abs(const Use& use) {
  VOLTA_TRY(const auto none, use.bind({}));
  static_cast<void>(none);
  if (!use.input.is_number())
    return use.bad(fmt::format("does not take {}", use.input.type_name()));
  if (const double* real = use.input.if_double()) return Value(std::abs(*real));
  std::int64_t number = 0;
  use.input.as_int(number);
  return number < 0 ? negate(Value(number)) : Result<Value>(Value(number));
}

Result<Value> filter_round(const Use& use) {
  VOLTA_TRY(const auto p, use.bind({"precision", "method"}));
  VOLTA_TRY(const std::int64_t precision, p.integer(0, 0));
  VOLTA_TRY(const std::string_view method, p.text_or(1, "common"));
  if (!use.input.is_number())
    return use.bad(fmt::format("does not take {}", use.input.type_name()));
  if (precision < 0 || precision > 15) return use.unsupported("to that precision is not supported");
  const double number = use.input.as_double();
  if (method == "common") {
    std::int64_t integer = 0;
    if (use.input.as_int(integer)) return Value(integer);
    if (!std::isfinite(number) || std::abs(number) >= 1e22) return Value(number);
    std::array<char, 64> digits{};
    const auto written = std::to_chars(digits.begin(), digits.end(), number,
                                       std::chars_format::fixed, static_cast<int>(precision));
    double rounded = 0.0;
    std::from_chars(digits.begin(), written.ptr, rounded);
    return Value(rounded);
  }
  if (method != "ceil" && method != "floor") return use.bad("takes common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = number * scale;
  if (!std::isfinite(scaled)) return use.bad("cannot round that");
  const double cut = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
  return Value((cut == 0.0 ? 0.0 : cut) / scale);
}

}  // namespace volta::jinja
