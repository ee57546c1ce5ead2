// Parses untrusted JSON text into a JsonValue, with simdjson's DOM and error codes. simdjson checks
// the grammar and UTF-8. This file checks the depth, the number of values, and repeated keys.
#define SIMDJSON_EXCEPTIONS 0
#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include "base/json.h"
#include "base/memory.h"

namespace volta {

namespace {

namespace dom = simdjson::dom;

constexpr std::string_view kTooDeep = "arrays and objects are nested too deep";

class Converter {
 public:
  Converter(std::string_view what, const JsonLimits& limits)
      : what_(what),
        max_array_(limits.max_array),
        values_left_(limits.max_values),
        depth_left_(limits.max_depth) {}

  Result<JsonValue> convert(const dom::element& element) {
    VOLTA_TRY(check_room(1));
    --values_left_;
    const bool nests = element.is_array() || element.is_object();
    if (nests && depth_left_ == 0) {
      return fail(ErrorCode::kInvalidFile, fmt::format("{}: {}", what_, kTooDeep));
    }
    depth_left_ -= nests ? 1 : 0;
    Result<JsonValue> value = convert_any(element);
    depth_left_ += nests ? 1 : 0;
    return value;
  }

 private:
  Status check_room(size_t values) const {
    if (static_cast<int64_t>(values) <= values_left_) return {};
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: holds too many JSON values", what_));
  }

  Result<JsonValue> convert_any(const dom::element& element) {
    switch (element.type()) {
      case dom::element_type::ARRAY:
        return convert_array(element.get_array().value_unsafe());
      case dom::element_type::OBJECT:
        return convert_object(element.get_object().value_unsafe());
      case dom::element_type::INT64:
        return JsonValue(element.get_int64().value_unsafe());
      case dom::element_type::UINT64:  // Too large for an int64.
        return JsonValue(static_cast<double>(element.get_uint64().value_unsafe()));
      case dom::element_type::DOUBLE:
        return JsonValue(element.get_double().value_unsafe());
      case dom::element_type::STRING:
        return JsonValue(std::string(element.get_string().value_unsafe()));
      case dom::element_type::BOOL:
        return JsonValue(element.get_bool().value_unsafe());
      case dom::element_type::NULL_VALUE:
        break;
    }
    return JsonValue();
  }

  // simdjson's size() is at most 2^24 - 1, even if there are more elements.
  Result<JsonValue> convert_array(const dom::array& array) {
    if (static_cast<int64_t>(array.size()) > max_array_) {
      return fail(
          ErrorCode::kInvalidFile,
          fmt::format("{}: an array has more elements than the {} allowed", what_, max_array_));
    }
    VOLTA_TRY(check_room(array.size()));
    JsonValue::Array values;
    values.reserve(array.size());
    for (const dom::element element : array) {
      VOLTA_TRY(JsonValue value, convert(element));
      values.push_back(std::move(value));
    }
    return JsonValue(std::move(values));
  }

  Result<JsonValue> convert_object(const dom::object& object) {
    VOLTA_TRY(check_room(object.size()));
    JsonValue::Object members;
    members.reserve(object.size());
    std::vector<std::string_view> keys;
    keys.reserve(object.size());
    for (const dom::key_value_pair member : object) {
      VOLTA_TRY(JsonValue value, convert(member.value));
      keys.push_back(member.key);
      members.emplace_back(member.key, std::move(value));
    }
    std::ranges::sort(keys);
    const auto repeated = std::ranges::adjacent_find(keys);
    if (repeated != keys.end()) {
      return fail(ErrorCode::kInvalidFile,
                  fmt::format("{}: key '{}' is repeated", what_, *repeated));
    }
    return JsonValue(std::move(members));
  }

  std::string_view what_;
  int64_t max_array_;
  int64_t values_left_;
  int depth_left_;
};

// Whether simdjson accepts the integer `digits`, which has digits only.
bool fits_64_bits(std::string_view digits, bool negative) {
  uint64_t magnitude = 0;
  if (std::from_chars(digits.begin(), digits.end(), magnitude).ec != std::errc{}) return false;
  return !negative || magnitude <= uint64_t{1} << 63;
}

// simdjson rejects integers of more than 64 bits. They are valid JSON and occur in real files
// (Hugging Face writes "model_max_length": 1000000000000000019884624838656). This appends ".0" to
// each of them outside strings, so that it is a double.
std::string widen_long_integers(std::string_view text) {
  std::string out;
  bool in_string = false;
  bool fraction = false;  // Inside a number, after a point or an exponent.
  size_t digits = 0;      // The number of digits that end before text[i].
  const auto is_too_long = [&](size_t end) {
    const size_t begin = end - digits;
    return digits > 0 && !fraction &&
           !fits_64_bits(text.substr(begin, digits), begin > 0 && text[begin - 1] == '-');
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (!in_string && c >= '0' && c <= '9') {
      ++digits;
    } else {
      const bool point = c == '.' || c == 'e' || c == 'E';
      if (!point && is_too_long(i)) out += ".0";
      fraction = !in_string && (point || (fraction && (c == '+' || c == '-')));
      digits = 0;
      if (c == '"') in_string = !in_string;
    }
    out += c;
    if (in_string && c == '\\' && i + 1 < text.size()) out += text[++i];
  }
  if (is_too_long(text.size())) out += ".0";
  return out;
}

std::string_view remedy_for(simdjson::error_code error) {
  switch (error) {
    case simdjson::EMPTY:
      return "it is empty";
    case simdjson::UTF8_ERROR:
      return "it is not UTF-8";
    case simdjson::DEPTH_ERROR:
      return kTooDeep;
    case simdjson::NUMBER_ERROR:
      return "a number is malformed or too large";
    case simdjson::UNCLOSED_STRING:
      return "a string does not end: is the file cut off?";
    default:
      return simdjson::error_message(error);
  }
}

// The parsed element is valid as long as the parser exists.
Result<dom::element> run_parser(dom::parser& parser, std::string_view text) {
  VOLTA_TRY(auto padded, try_make_array<char>(static_cast<int64_t>(text.size()) +
                                              static_cast<int64_t>(simdjson::SIMDJSON_PADDING)));
  std::ranges::copy(text, padded.begin());
  dom::element root;
  const simdjson::error_code error =
      parser.parse(padded.data(), text.size(), /*realloc_if_needed=*/false).get(root);
  if (error == simdjson::SUCCESS) return root;
  const bool memory = error == simdjson::MEMALLOC || error == simdjson::CAPACITY;
  return fail(memory ? ErrorCode::kOutOfMemory : ErrorCode::kInvalidFile,
              fmt::format("not valid JSON: {}", remedy_for(error)));
}

}  // namespace

Result<JsonValue> parse_json(std::string_view text, std::string_view what,
                             const JsonLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.max_bytes) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: {} bytes of JSON, more than the {} allowed", what, text.size(),
                            limits.max_bytes));
  }
  dom::parser parser;
  // simdjson does not count empty brackets, so Converter counts the depth again.
  const size_t depth = static_cast<size_t>(limits.max_depth) + 1;
  if (parser.allocate(text.size() + text.size() / 4 + 1, depth) != simdjson::SUCCESS) {
    return fail(ErrorCode::kOutOfMemory, fmt::format("{}: not enough memory to parse it", what));
  }
  Result<dom::element> root = run_parser(parser, text);
  if (!root) {
    // The text is parsed again only if it has changed, that is, if it is longer.
    const std::string widened = widen_long_integers(text);
    if (widened.size() > text.size()) root = run_parser(parser, widened);
  }
  if (!root) return std::unexpected(std::move(root).error().with_context(what));
  return Converter(what, limits).convert(*root);
}

}  // namespace volta
