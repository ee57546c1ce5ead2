// Visitors that write fields as JSON and read them back.
#include "ops/op_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "ops/fields.h"

namespace volta {
namespace {

class FieldWriter {
 public:
  explicit FieldWriter(JsonWriter& json) : json_(json) {}
  void operator()(std::string_view name, const auto& value, bool /*shown*/ = true) {
    json_.key(name);
    write(value);
  }
  template <typename T>
  void write(const T& value) {
    if constexpr (HasFields<T>) {
      json_.begin_object();
      T::fields(value, *this);
      json_.end_object();
    } else if constexpr (std::is_enum_v<T>) {
      json_.value(word(value));
    } else if constexpr (std::same_as<T, float>) {
      write_float(value);
    } else if constexpr (std::same_as<T, Shape>) {
      json_.begin_array();
      for (int axis = 0; axis < value.rank(); ++axis) json_.value(value[axis]);
      json_.end_array();
    } else if constexpr (std::is_arithmetic_v<T>) {
      json_.value(value);
    } else {
      json_.begin_array();
      for (const auto& element : value) write(element);
      json_.end_array();
    }
  }

 private:
  // Writes the float as a double: the shortest digits of a double are read back as the same double,
  // but the shortest digits of a float, read as a double and rounded, may give another float. "-0"
  // would be read as an integer.
  void write_float(float value) {
    if (std::isnan(value)) {
      json_.value("nan");
    } else if (std::isinf(value)) {
      json_.value(value > 0 ? "inf" : "-inf");
    } else if (value == 0.0f && std::signbit(value)) {
      json_.raw("-0.0");
    } else {
      json_.value(static_cast<double>(value));
    }
  }

  JsonWriter& json_;
};

std::unexpected<Error> invalid(const JsonRef& json, std::string_view expected) {
  return fail(ErrorCode::kInvalidFile, fmt::format("{}: expected {}, found {}", json.path(),
                                                   expected, json.node().leaf_text()));
}

Result<float> read_float(const JsonRef& json) {
  if (const std::string* text = json.node().if_string()) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    if (*text == "nan") return std::numeric_limits<float>::quiet_NaN();
    if (*text == "inf") return kInfinity;
    if (*text == "-inf") return -kInfinity;
    return invalid(json, R"(a number, "nan", "inf" or "-inf")");
  }
  constexpr double kLargest = std::numeric_limits<float>::max();
  VOLTA_TRY(const double value, json.as_float(-kLargest, kLargest));
  return static_cast<float>(value);
}

/// Tries all 256 values of a one-byte enum. word() returns "?" for those that do not exist.
template <typename Enum>
Result<Enum> read_enum(const JsonRef& json) {
  static_assert(sizeof(Enum) == 1);
  VOLTA_TRY(const std::string text, json.as_string());
  std::string words;
  for (int i = 0; i <= std::numeric_limits<std::uint8_t>::max(); ++i) {
    const auto value = static_cast<Enum>(i);
    if (word(value) == "?") continue;
    if (word(value) == text) return value;
    words += (words.empty() ? "" : ", ") + std::string(word(value));
  }
  return invalid(json, "one of " + words);
}

Result<Shape> read_shape(const JsonRef& json) {
  VOLTA_TRY(const std::vector<JsonRef> elements, json.elements());
  if (elements.size() > static_cast<std::size_t>(kMaxRank)) {
    return invalid(json, fmt::format("at most {} dimensions", kMaxRank));
  }
  Shape shape;
  for (const JsonRef& element : elements) {
    VOLTA_TRY(const std::int64_t dim, element.as_int(0, kMaxTensorBytes));
    shape.push_back(dim);
  }
  return shape;
}

template <HasFields T>
Result<T> read_struct(const JsonRef& json);

template <typename T>
Status read_value(const JsonRef& json, T& value) {
  if constexpr (HasFields<T>) {
    VOLTA_TRY(value, read_struct<T>(json));
  } else if constexpr (std::same_as<T, bool>) {
    VOLTA_TRY(value, json.as_bool());
  } else if constexpr (std::is_enum_v<T>) {
    VOLTA_TRY(value, read_enum<T>(json));
  } else if constexpr (std::same_as<T, float>) {
    VOLTA_TRY(value, read_float(json));
  } else if constexpr (std::same_as<T, Shape>) {
    VOLTA_TRY(value, read_shape(json));
  } else if constexpr (std::integral<T>) {
    using Limits = std::numeric_limits<T>;
    VOLTA_TRY(const std::int64_t number, json.as_int(Limits::min(), Limits::max()));
    value = static_cast<T>(number);
  } else {
    VOLTA_TRY(const std::vector<JsonRef> elements, json.elements());
    if (elements.size() != value.size()) {
      return invalid(json, fmt::format("{} numbers", value.size()));
    }
    for (std::size_t i = 0; i < value.size(); ++i) VOLTA_TRY(read_value(elements[i], value[i]));
  }
  return {};
}

/// A visitor that reads each field, until the first error.
class FieldReader {
 public:
  explicit FieldReader(const JsonRef& json) : json_(json) {}
  void operator()(std::string_view name, auto& value, bool /*shown*/ = true) {
    names_.push_back(name);
    if (status_) status_ = read(name, value);
  }
  /// Returns the first error, or an error for a member that is no field.
  Status finish() {
    VOLTA_TRY(std::move(status_));
    for (const auto& [name, value] : *json_.node().if_object()) {
      if (std::ranges::find(names_, name) != names_.end()) continue;
      return fail(ErrorCode::kInvalidFile,
                  fmt::format("{}: there is no such field", json_.at(value).path()));
    }
    return {};
  }

 private:
  Status read(std::string_view name, auto& value) {
    VOLTA_TRY(const JsonRef member, json_.member(name));
    return read_value(member, value);
  }

  const JsonRef& json_;
  std::vector<std::string_view> names_;
  Status status_;
};

template <HasFields T>
Result<T> read_struct(const JsonRef& json) {
  if (json.node().if_object() == nullptr) return invalid(json, "an object");
  T value{};
  FieldReader reader(json);
  T::fields(value, reader);
  VOLTA_TRY(reader.finish());
  return value;
}

}  // namespace

void write_op(JsonWriter& json, const Op& op) {
  json.field("op", op_name(op)).key("fields");
  FieldWriter writer(json);
  std::visit([&](const auto& any) { writer.write(any); }, op);
}

Result<Op> read_op(const JsonRef& json) {
  VOLTA_TRY(const JsonRef name, json.member("op"));
  VOLTA_TRY(const std::string wanted, name.as_string());
  VOLTA_TRY(const JsonRef fields, json.member("fields"));
  std::optional<Result<Op>> op;
#define VOLTA_READ_OP(Name) \
  if (wanted == #Name) op = read_struct<Name>(fields);
  VOLTA_OPS(VOLTA_READ_OP)
#undef VOLTA_READ_OP
  if (op) return *std::move(op);
  return invalid(name, "the name of an op");
}

void write_spec(JsonWriter& json, const TensorSpec& spec) {
  FieldWriter writer(json);
  writer("dtype", spec.dtype);
  writer("shape", spec.shape);
  if (!spec.encoding.plain()) writer("encoding", spec.encoding);
}

Result<TensorSpec> read_spec(const JsonRef& json) {
  TensorSpec spec;
  VOLTA_TRY(const JsonRef dtype, json.member("dtype"));
  VOLTA_TRY(spec.dtype, read_enum<DType>(dtype));
  VOLTA_TRY(const JsonRef shape, json.member("shape"));
  VOLTA_TRY(spec.shape, read_shape(shape));
  VOLTA_TRY(const std::optional<JsonRef> encoding, json.optional_member("encoding"));
  if (encoding) {
    VOLTA_TRY(spec.encoding, read_struct<Encoding>(*encoding));
  }
  const Status status = check_spec(spec);
  if (status) return spec;
  return fail(ErrorCode::kInvalidFile,
              fmt::format("{}: {}", json.path(), status.error().message()));
}

}  // namespace volta
