// JSON: a writer for Volta's output, and a reader for untrusted input. The reader uses simdjson
// with error codes. It limits the size, the depth and the number of values, asks regularly whether
// to stop, and rejects invalid UTF-8 and duplicate keys. Nothing here throws.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/work_budget.h"

namespace [[gnu::visibility("default")]] volta {

/// Builds a JSON text value by value:
///   JsonWriter w;
///   w.begin_object().field("step", 3).key("loss").value(1.5).end_object();
///   w.text();  // {"step":3,"loss":1.5}
/// It writes commas, escapes and indentation. The caller is responsible for the order of calls: a
/// key before each value of an object, and an end for each begin.
class JsonWriter {
 public:
  /// `indent` spaces per level and one value per line; with 0 everything is on one line.
  explicit JsonWriter(int indent = 0) : indent_(indent) {}

  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);

  /// Bytes that are not valid UTF-8 become U+FFFD.
  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(bool flag);
  /// The shortest digits that read back as the same number; null when it is not finite.
  JsonWriter& value(double number);
  JsonWriter& value(float number);
  template <std::integral T>
  JsonWriter& value(T number) {
    if constexpr (std::signed_integral<T>) {
      return integer(static_cast<std::int64_t>(number));
    } else {
      return integer(static_cast<std::uint64_t>(number));
    }
  }
  JsonWriter& null();
  /// Writes a value that is already JSON text.
  JsonWriter& raw(std::string_view json);

  /// key(name).value(v)
  template <typename T>
  JsonWriter& field(std::string_view name, const T& v) {
    return key(name).value(v);
  }

  const std::string& text() const { return text_; }
  std::string take() && { return std::move(text_); }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  JsonWriter& integer(std::int64_t number);
  JsonWriter& integer(std::uint64_t number);
  void before_value();
  void new_line();
  void append_string(std::string_view text);

  int indent_;
  std::string text_;
  std::vector<bool> has_values_;  // Per open bracket: whether it has a value yet.
  bool after_key_ = false;
};

/// One value of a parsed document, which owns everything below it.
class JsonValue {
 public:
  using Array = std::vector<JsonValue>;
  using Member = std::pair<std::string, JsonValue>;
  using Object = std::vector<Member>;  ///< In the order of the text, without duplicate keys.

  JsonValue() = default;
  template <typename T>
    requires(!std::same_as<std::remove_cvref_t<T>, JsonValue>)
  explicit JsonValue(T&& value) : data_(std::forward<T>(value)) {}

  bool is_null() const { return std::holds_alternative<std::monostate>(data_); }
  /// The value, or null if it has another type. Numbers without fraction and exponent that fit into
  /// int64_t are integers; all others are doubles.
  const bool* if_bool() const { return std::get_if<bool>(&data_); }
  const std::int64_t* if_int() const { return std::get_if<std::int64_t>(&data_); }
  const double* if_double() const { return std::get_if<double>(&data_); }
  const std::string* if_string() const { return std::get_if<std::string>(&data_); }
  const Array* if_array() const { return std::get_if<Array>(&data_); }
  const Object* if_object() const { return std::get_if<Object>(&data_); }
  /// "null", "a boolean", "an integer", "a number", "a string", "an array" or "an object".
  std::string_view type_name() const;
  /// For messages: the value of a leaf ("true", "3", "0.5", a string without quotes), or
  /// type_name() for null, arrays and objects.
  std::string leaf_text() const;

  /// The member with this key; null if there is none or this is not an object. Takes time linear in
  /// the number of members.
  const JsonValue* find(std::string_view key) const;

 private:
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object> data_;
};

/// The limits of a document. A document that exceeds one is an error. A value takes up to 120 bytes
/// of memory while the document is parsed, a byte of the text up to 6, so with the default limits
/// parsing takes less than 1 GiB, whatever the document is.
struct JsonLimits {
  std::int64_t max_bytes = std::int64_t{64} << 20;
  std::int64_t max_values = std::int64_t{5} << 20;  ///< Of any type, at any depth.
  std::int64_t max_array = max_values;              ///< Elements of one array.
  int max_depth = 64;                               ///< Of nested arrays and objects.
};

/// Parses one JSON document; `what` names it in messages. kInvalidFile if it is not JSON (with the
/// reason), is not UTF-8, repeats a key, or exceeds a limit; kOutOfMemory if there is not enough
/// memory; kInterrupted if `interrupted`, which is called regularly, returns true. The limits are
/// checked before memory is taken.
Result<JsonValue> parse_json(std::string_view text, std::string_view what,
                             const JsonLimits& limits = {}, const Interruption& interrupted = {});

/// A reference to a value in a parsed document. It knows the path of the value, so that a wrong
/// value is reported as "config.json: rope.theta: expected a number, found a string". It points
/// into the document's JsonValue, which must outlive it. Navigation allocates no text. The errors
/// of all getters are kInvalidFile.
class JsonRef {
 public:
  /// The whole document; `what` names it.
  JsonRef(const JsonValue& document, std::string_view what)
      : what_(std::make_shared<const std::string>(what)), document_(&document), value_(&document) {}

  const JsonValue& node() const { return *value_; }
  /// "config.json" for the whole document, "config.json: a.b[3]" for a value in it. This searches
  /// the document for the value, so call it for messages only, not for every value.
  std::string path() const;
  /// A reference to another value in this document, e.g. to a member in a loop.
  JsonRef at(const JsonValue& value) const;

  /// The member with this key; an error if this is not an object, or if the member is missing or
  /// null.
  Result<JsonRef> member(std::string_view key) const;
  /// The member with this key; nothing if it is missing or null; an error if this is not an object.
  Result<std::optional<JsonRef>> optional_member(std::string_view key) const;
  /// The elements of this array.
  Result<std::vector<JsonRef>> elements() const;

  Result<bool> as_bool() const;
  Result<std::int64_t> as_int(std::int64_t min = std::numeric_limits<std::int64_t>::min(),
                              std::int64_t max = std::numeric_limits<std::int64_t>::max()) const;
  /// Integers are accepted, too.
  Result<double> as_float(double min = std::numeric_limits<double>::lowest(),
                          double max = std::numeric_limits<double>::max()) const;
  Result<std::string> as_string() const;

  /// Shorthands for member(key) and a conversion.
  Result<bool> get_bool(std::string_view key) const;
  Result<std::int64_t> get_int(std::string_view key,
                               std::int64_t min = std::numeric_limits<std::int64_t>::min(),
                               std::int64_t max = std::numeric_limits<std::int64_t>::max()) const;
  Result<double> get_float(std::string_view key, double min = std::numeric_limits<double>::lowest(),
                           double max = std::numeric_limits<double>::max()) const;
  Result<std::string> get_string(std::string_view key) const;
  /// The same, but `fallback` if the key is missing or null.
  Result<bool> get_bool_or(std::string_view key, bool fallback) const;
  Result<std::int64_t> get_int_or(
      std::string_view key, std::int64_t fallback,
      std::int64_t min = std::numeric_limits<std::int64_t>::min(),
      std::int64_t max = std::numeric_limits<std::int64_t>::max()) const;
  Result<double> get_float_or(std::string_view key, double fallback,
                              double min = std::numeric_limits<double>::lowest(),
                              double max = std::numeric_limits<double>::max()) const;
  Result<std::string> get_string_or(std::string_view key, std::string_view fallback) const;

 private:
  std::unexpected<Error> wrong_type(std::string_view expected) const;

  std::shared_ptr<const std::string> what_;  // Shared by all references into a document.
  const JsonValue* document_;
  const JsonValue* value_;
};

}  // namespace volta
