// Parses untrusted JSON text into a JsonValue, with simdjson's DOM and error codes. simdjson checks
// the grammar and UTF-8. This file checks the depth, the number of values, and repeated keys. The
// values are counted before simdjson runs, because its memory and its time, during which nobody can
// interrupt it, grow with their number.
#define SIMDJSON_EXCEPTIONS 0
#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"

namespace volta {

namespace {

namespace dom = simdjson::dom;

constexpr std::string_view kTooDeep = "arrays and objects are nested too deep";
constexpr int kValuesBetweenQuestions = 4096;                         // Less than a millisecond.
constexpr std::size_t kBytesBetweenQuestions = std::size_t{1} << 20;  // As above.
constexpr std::size_t kKeysBetweenQuestions = std::size_t{1} << 15;   // Some milliseconds.

Status ask(const Interruption& interrupted) {
  if (interrupted && interrupted()) return fail(ErrorCode::kInterrupted, "interrupted");
  return {};
}

// Whether a value follows this byte, unless it is inside a string or the brackets are empty.
constexpr bool begins_value(char c) { return c == ',' || c == '[' || c == '{'; }

// Checks the number of values without parsing. Each value but the outermost one follows a comma or
// an opening bracket. If the text has few of these bytes even in its strings, nothing more is read.
Status check_number_of_values(std::string_view text, std::string_view what, std::int64_t max_values,
                              const Interruption& interrupted) {
  if (std::ssize(text) < max_values) return {};
  if (std::ranges::count_if(text, begins_value) < max_values) return {};
  std::int64_t values = 1;
  std::size_t asked_at = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (i - asked_at >= kBytesBetweenQuestions) {
      asked_at = i;
      VOLTA_TRY(ask(interrupted));
    }
    if (c == '"') {
      in_string = !in_string;
    } else if (in_string) {
      if (c == '\\') ++i;
    } else if (begins_value(c)) {
      const std::size_t next = text.find_first_not_of(" \t\r\n", i + 1);
      const bool empty = next != text.npos && (text[next] == ']' || text[next] == '}');
      values += empty ? 0 : 1;
    }
    if (values > max_values) {
      return fail(ErrorCode::kInvalidFile,
                  fmt::format("{}: holds more than the {} JSON values allowed", what, max_values));
    }
  }
  return {};
}

class Converter {
 public:
  Converter(std::string_view what, const JsonLimits& limits, const Interruption& interrupted)
      : what_(what),
        max_array_(limits.max_array),
        depth_left_(limits.max_depth),
        interrupted_(interrupted) {}

  Result<JsonValue> convert(const dom::element& element) {
    if (--until_question_ == 0) {
      until_question_ = kValuesBetweenQuestions;
      VOLTA_TRY(ask(interrupted_));
    }
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
    if (static_cast<std::int64_t>(array.size()) > max_array_) {
      return fail(
          ErrorCode::kInvalidFile,
          fmt::format("{}: an array has more elements than the {} allowed", what_, max_array_));
    }
    JsonValue::Array values;
    values.reserve(array.size());
    for (const dom::element element : array) {
      VOLTA_TRY(JsonValue value, convert(element));
      values.push_back(std::move(value));
    }
    return JsonValue(std::move(values));
  }

  Result<JsonValue> convert_object(const dom::object& object) {
    JsonValue::Object members;
    members.reserve(object.size());
    std::vector<std::string_view> keys;
    keys.reserve(object.size());
    for (const dom::key_value_pair member : object) {
      VOLTA_TRY(JsonValue value, convert(member.value));
      keys.push_back(member.key);
      members.emplace_back(member.key, std::move(value));
    }
    VOLTA_TRY(sort(keys));
    const auto repeated = std::ranges::adjacent_find(keys);
    if (repeated != keys.end()) {
      return fail(ErrorCode::kInvalidFile,
                  fmt::format("{}: key '{}' is repeated", what_, *repeated));
    }
    return JsonValue(std::move(members));
  }

  // Sorts parts and merges them, with a question before each.
  Status sort(std::span<std::string_view> keys) const {
    for (std::size_t begin = 0; begin < keys.size(); begin += kKeysBetweenQuestions) {
      if (begin > 0) VOLTA_TRY(ask(interrupted_));
      std::ranges::sort(
          keys.subspan(begin).first(std::min(kKeysBetweenQuestions, keys.size() - begin)));
    }
    for (std::size_t width = kKeysBetweenQuestions; width < keys.size(); width *= 2) {
      for (std::size_t begin = 0; begin + width < keys.size(); begin += 2 * width) {
        VOLTA_TRY(ask(interrupted_));
        const auto pair = keys.subspan(begin).first(std::min(2 * width, keys.size() - begin));
        std::ranges::inplace_merge(pair, pair.begin() + static_cast<std::ptrdiff_t>(width));
      }
    }
    return {};
  }

  std::string_view what_;
  std::int64_t max_array_;
  int depth_left_;
  const Interruption& interrupted_;
  int until_question_ = kValuesBetweenQuestions;
};

// Whether simdjson accepts the integer `digits`, which has digits only.
bool fits_64_bits(std::string_view digits, bool negative) {
  std::uint64_t magnitude = 0;
  if (std::from_chars(digits.begin(), digits.end(), magnitude).ec != std::errc{}) return false;
  return !negative || magnitude <= std::uint64_t{1} << 63;
}

// simdjson rejects integers of more than 64 bits. They are valid JSON and occur in real files
// (Hugging Face writes "model_max_length": 1000000000000000019884624838656). This appends ".0" to
// each of them outside strings, so that it is a double. Nothing is appended to later ones than the
// first kMostLongIntegers, because simdjson takes 60 times as long for such a number.
constexpr int kMostLongIntegers = 1000;
std::string widen_long_integers(std::string_view text) {
  std::string out;
  int left = kMostLongIntegers;
  bool in_string = false;
  bool fraction = false;   // Inside a number, after a point or an exponent.
  std::size_t digits = 0;  // The number of digits that end before text[i].
  const auto is_too_long = [&](std::size_t end) {
    const std::size_t begin = end - digits;
    return digits > 0 && !fraction &&
           !fits_64_bits(text.substr(begin, digits), begin > 0 && text[begin - 1] == '-') &&
           left-- > 0;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
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

// The parsed element is valid as long as the document exists.
Result<dom::element> run_parser(dom::parser& parser, dom::document& document,
                                std::string_view text) {
  VOLTA_TRY(auto padded,
            try_make_array<char>(static_cast<std::int64_t>(text.size()) +
                                 static_cast<std::int64_t>(simdjson::SIMDJSON_PADDING)));
  std::ranges::copy(text, padded.begin());
  dom::element root;
  const simdjson::error_code error =
      parser.parse_into_document(document, padded.data(), text.size(), /*realloc_if_needed=*/false)
          .get(root);
  if (error == simdjson::SUCCESS) return root;
  const bool memory = error == simdjson::MEMALLOC || error == simdjson::CAPACITY;
  if (!memory && find_wide_encoding(text)) {
    return fail(ErrorCode::kInvalidFile, *utf8_mistake(text));
  }
  return fail(memory ? ErrorCode::kOutOfMemory : ErrorCode::kInvalidFile,
              fmt::format("not valid JSON: {}", remedy_for(error)));
}

// As above. simdjson's working memory is released at the end.
Result<dom::element> parse(dom::document& document, std::string_view text, int max_depth,
                           const Interruption& interrupted) {
  dom::parser parser;
  // simdjson does not count empty brackets, so Converter counts the depth again.
  const std::size_t capacity = text.size() + text.size() / 4 + 1;
  if (parser.allocate(capacity, static_cast<std::size_t>(max_depth) + 1) != simdjson::SUCCESS) {
    return fail(ErrorCode::kOutOfMemory, "not enough memory to parse it");
  }
  Result<dom::element> root = run_parser(parser, document, text);
  if (root) return root;
  // The text is parsed again only if it has changed, that is, if it is longer.
  VOLTA_TRY(ask(interrupted));
  const std::string widened = widen_long_integers(text);
  VOLTA_TRY(ask(interrupted));
  return widened.size() > text.size() ? run_parser(parser, document, widened) : root;
}

}  // namespace

Result<JsonValue> parse_json(std::string_view text, std::string_view what, const JsonLimits& limits,
                             const Interruption& interrupted) {
  if (static_cast<std::int64_t>(text.size()) > limits.max_bytes) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: {} bytes of JSON, more than the {} allowed", what, text.size(),
                            limits.max_bytes));
  }
  VOLTA_TRY(check_number_of_values(text, what, limits.max_values, interrupted));
  dom::document document;
  Result<dom::element> root = parse(document, text, limits.max_depth, interrupted);
  if (!root) return std::unexpected(std::move(root).error().with_context(what));
  return Converter(what, limits, interrupted).convert(*root);
}

}  // namespace volta
