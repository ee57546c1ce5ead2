// The JSON writer and the typed access to parsed documents. Parsing itself is in json_parse.cc.
#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace volta {

JsonWriter& JsonWriter::key(std::string_view name) {
  before_value();
  append_string(name);
  text_ += indent_ > 0 ? ": " : ":";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  before_value();
  append_string(text);
  return *this;
}

JsonWriter& JsonWriter::value(bool flag) { return raw(flag ? "true" : "false"); }

JsonWriter& JsonWriter::value(double number) {
  return std::isfinite(number) ? raw(fmt::format("{}", number)) : null();
}

JsonWriter& JsonWriter::value(float number) {
  return std::isfinite(number) ? raw(fmt::format("{}", number)) : null();
}

JsonWriter& JsonWriter::integer(std::int64_t number) { return raw(fmt::format("{}", number)); }
JsonWriter& JsonWriter::integer(std::uint64_t number) { return raw(fmt::format("{}", number)); }
JsonWriter& JsonWriter::null() { return raw("null"); }

JsonWriter& JsonWriter::raw(std::string_view json) {
  before_value();
  text_ += json;
  return *this;
}

JsonWriter& JsonWriter::open(char bracket) {
  before_value();
  text_ += bracket;
  has_values_.push_back(false);
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  const bool had_values = !has_values_.empty() && has_values_.back();
  if (!has_values_.empty()) has_values_.pop_back();
  if (had_values) new_line();
  text_ += bracket;
  return *this;
}

void JsonWriter::before_value() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (has_values_.empty()) return;
  if (has_values_.back()) text_ += ',';
  has_values_.back() = true;
  new_line();
}

void JsonWriter::new_line() {
  if (indent_ <= 0) return;
  text_ += '\n';
  text_.append(has_values_.size() * static_cast<std::size_t>(indent_), ' ');
}

namespace {

// The number of bytes at the start of invalid UTF-8 that one U+FFFD stands for: as many as begin a
// character (as in Python, Rust and the Unicode standard), at least one. Behind its second byte, a
// character can always be completed by bytes of 0x80.
std::size_t invalid_length(std::string_view text) {
  for (std::size_t length = std::min<std::size_t>(text.size(), 3); length > 1; --length) {
    const auto completed = decode_utf8(std::string(text.substr(0, length)) + "\x80\x80");
    if (completed && static_cast<std::size_t>(completed->length) > length) return length;
  }
  return 1;
}

}  // namespace

void JsonWriter::append_string(std::string_view text) {
  text_ += '"';
  while (!text.empty()) {
    const std::optional<CodePoint> point = decode_utf8(text);
    const std::string_view bytes =
        text.substr(0, point ? static_cast<std::size_t>(point->length) : invalid_length(text));
    text.remove_prefix(bytes.size());
    if (!point) {
      append_utf8(text_, 0xFFFD);
    } else if (point->value == '"' || point->value == '\\') {
      text_ += '\\';
      text_ += bytes;
    } else if (point->value == '\n') {
      text_ += "\\n";
    } else if (point->value == '\t') {
      text_ += "\\t";
    } else if (point->value < 0x20) {
      text_ += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(point->value));
    } else {
      text_ += bytes;
    }
  }
  text_ += '"';
}

std::string_view JsonValue::type_name() const {
  if (if_bool() != nullptr) return "a boolean";
  if (if_int() != nullptr) return "an integer";
  if (if_double() != nullptr) return "a number";
  if (if_string() != nullptr) return "a string";
  if (if_array() != nullptr) return "an array";
  if (if_object() != nullptr) return "an object";
  return "null";
}

std::string JsonValue::leaf_text() const {
  if (const auto* flag = if_bool()) return *flag ? "true" : "false";
  if (const auto* integer = if_int()) return fmt::format("{}", *integer);
  if (const auto* number = if_double()) return fmt::format("{}", *number);
  if (const auto* text = if_string()) return *text;
  return std::string(type_name());
}

const JsonValue* JsonValue::find(std::string_view key) const {
  if (const Object* members = if_object()) {
    for (const auto& [name, value] : *members) {
      if (name == key) return &value;
    }
  }
  return nullptr;
}

namespace {

// Puts the path from `from` down to `wanted` (".a", "[3]") in front of `path`; false if `wanted` is
// not below `from`.
bool add_steps(const JsonValue& from, const JsonValue* wanted, std::string& path) {
  if (&from == wanted) return true;
  if (const JsonValue::Array* array = from.if_array()) {
    for (std::size_t i = 0; i < array->size(); ++i) {
      if (!add_steps((*array)[i], wanted, path)) continue;
      path.insert(0, fmt::format("[{}]", i));
      return true;
    }
  } else if (const JsonValue::Object* members = from.if_object()) {
    for (const auto& [key, value] : *members) {
      if (!add_steps(value, wanted, path)) continue;
      path.insert(0, fmt::format(".{}", key));
      return true;
    }
  }
  return false;
}

}  // namespace

std::string JsonRef::path() const {
  std::string steps;
  add_steps(*document_, value_, steps);
  if (steps.starts_with('.')) steps.erase(0, 1);
  return steps.empty() ? *what_ : fmt::format("{}: {}", *what_, steps);
}

JsonRef JsonRef::at(const JsonValue& value) const {
  JsonRef place = *this;
  place.value_ = &value;
  return place;
}

std::unexpected<Error> JsonRef::wrong_type(std::string_view expected) const {
  return fail(ErrorCode::kInvalidFile,
              fmt::format("{}: expected {}, found {}", path(), expected, value_->type_name()));
}

Result<std::optional<JsonRef>> JsonRef::optional_member(std::string_view key) const {
  if (value_->if_object() == nullptr) return wrong_type("an object");
  const JsonValue* found = value_->find(key);
  if (found == nullptr || found->is_null()) return std::nullopt;
  return at(*found);
}

Result<JsonRef> JsonRef::member(std::string_view key) const {
  VOLTA_TRY(std::optional<JsonRef> found, optional_member(key));
  if (found) return *std::move(found);
  return fail(ErrorCode::kInvalidFile, fmt::format("{}: '{}' is missing", path(), key));
}

Result<std::vector<JsonRef>> JsonRef::elements() const {
  const JsonValue::Array* array = value_->if_array();
  if (array == nullptr) return wrong_type("an array");
  std::vector<JsonRef> refs;
  refs.reserve(array->size());
  for (const JsonValue& value : *array) refs.push_back(at(value));
  return refs;
}

Result<bool> JsonRef::as_bool() const {
  if (const bool* flag = value_->if_bool()) return *flag;
  return wrong_type("a boolean");
}

Result<std::int64_t> JsonRef::as_int(std::int64_t min, std::int64_t max) const {
  const std::int64_t* number = value_->if_int();
  if (number == nullptr) return wrong_type("an integer");
  if (*number >= min && *number <= max) return *number;
  return fail(ErrorCode::kInvalidFile,
              fmt::format("{}: {} is not an integer from {} to {}", path(), *number, min, max));
}

Result<double> JsonRef::as_float(double min, double max) const {
  double number = 0;
  if (const double* d = value_->if_double()) {
    number = *d;
  } else if (const std::int64_t* i = value_->if_int()) {
    number = static_cast<double>(*i);
  } else {
    return wrong_type("a number");
  }
  if (number >= min && number <= max) return number;
  return fail(ErrorCode::kInvalidFile,
              fmt::format("{}: {} is not a number from {} to {}", path(), number, min, max));
}

Result<std::string> JsonRef::as_string() const {
  if (const std::string* text = value_->if_string()) return *text;
  return wrong_type("a string");
}

Result<bool> JsonRef::get_bool(std::string_view key) const {
  VOLTA_TRY(const JsonRef found, member(key));
  return found.as_bool();
}

Result<std::int64_t> JsonRef::get_int(std::string_view key, std::int64_t min,
                                      std::int64_t max) const {
  VOLTA_TRY(const JsonRef found, member(key));
  return found.as_int(min, max);
}

Result<double> JsonRef::get_float(std::string_view key, double min, double max) const {
  VOLTA_TRY(const JsonRef found, member(key));
  return found.as_float(min, max);
}

Result<std::string> JsonRef::get_string(std::string_view key) const {
  VOLTA_TRY(const JsonRef found, member(key));
  return found.as_string();
}

Result<bool> JsonRef::get_bool_or(std::string_view key, bool fallback) const {
  VOLTA_TRY(const std::optional<JsonRef> found, optional_member(key));
  return found ? found->as_bool() : fallback;
}

Result<std::int64_t> JsonRef::get_int_or(std::string_view key, std::int64_t fallback,
                                         std::int64_t min, std::int64_t max) const {
  VOLTA_TRY(const std::optional<JsonRef> found, optional_member(key));
  return found ? found->as_int(min, max) : fallback;
}

Result<double> JsonRef::get_float_or(std::string_view key, double fallback, double min,
                                     double max) const {
  VOLTA_TRY(const std::optional<JsonRef> found, optional_member(key));
  return found ? found->as_float(min, max) : fallback;
}

Result<std::string> JsonRef::get_string_or(std::string_view key, std::string_view fallback) const {
  VOLTA_TRY(const std::optional<JsonRef> found, optional_member(key));
  return found ? found->as_string() : std::string(fallback);
}

}  // namespace volta
