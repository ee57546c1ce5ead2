// Properties of the lists of fields, for every op at once: JSON gives the same op back, and every
// field counts in equality, keys and JSON. Then what the readers refuse.
#include "ops/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/json.h"
#include "base/rng.h"
#include "ops/op_json.h"
#include "ops/op_texts.h"
#include "tensor/weight_format.h"

namespace volta {
namespace {

using ::testing::HasSubstr;

template <typename Enum>
std::vector<Enum> values_of() {
  std::vector<Enum> values;
  for (int i = 0; i < 256; ++i) {
    if (word(static_cast<Enum>(i)) != "?") values.push_back(static_cast<Enum>(i));
  }
  return values;
}

// Fills every field with any value that its type can hold.
struct Randomize {
  RandomSequence& random;

  std::uint64_t bits() {
    const Random4 r = random.next();
    return std::uint64_t{r.x} << 32 | r.y;
  }
  template <typename T>
  void operator()(std::string_view, T& value, bool = true) {
    if constexpr (HasFields<T>) {
      T::fields(value, *this);
    } else if constexpr (std::is_enum_v<T>) {
      const auto all = values_of<T>();
      value = all[bits() % all.size()];
    } else if constexpr (std::same_as<T, bool>) {
      value = bits() % 2 == 0;
    } else if constexpr (std::same_as<T, float>) {
      value = std::bit_cast<float>(static_cast<std::uint32_t>(bits()));
      if (std::isnan(value)) value = std::numeric_limits<float>::quiet_NaN();
    } else if constexpr (std::same_as<T, Shape>) {
      value = Shape();
      for (std::uint64_t i = bits() % 7; i > 0; --i) {
        value.push_back(static_cast<std::int64_t>(bits() % (std::uint64_t{1} << 46)));
      }
    } else if constexpr (std::integral<T>) {
      value = static_cast<T>(bits());
    } else {
      for (auto& element : value) (*this)("", element);
    }
  }
};

// Changes the field number `target` and no other, counting those of structs within.
struct ChangeOne {
  int target;
  int next = 0;

  template <typename T>
  void operator()(std::string_view, T& value, bool = true) {
    if constexpr (HasFields<T>) {
      T::fields(value, *this);
      return;
    } else {
      if (next++ != target) return;
      if constexpr (std::is_enum_v<T>) {
        const auto all = values_of<T>();
        value = value == all[0] ? all[1] : all[0];
      } else if constexpr (std::same_as<T, bool>) {
        value = !value;
      } else if constexpr (std::same_as<T, Shape>) {
        value.push_back(3);
      } else if constexpr (std::is_arithmetic_v<T>) {
        value = static_cast<T>(value + 1);
      } else {
        ++value[value.size() - 1];
      }
    }
  }
};

std::string json_of(const Op& op) {
  JsonWriter json;
  json.begin_object();
  write_op(json, op);
  json.end_object();
  return std::move(json).take();
}

Result<Op> op_of(const std::string& text) {
  VOLTA_TRY(const JsonValue document, parse_json(text, "op"));
  return read_op(JsonRef(document, "op"));
}

template <typename T>
void json_gives_the_same_op_back() {
  RandomSequence random({.seed = 7, .stream = static_cast<std::uint32_t>(Op(T()).index())});
  for (int round = 0; round < 200; ++round) {
    T op;
    if (round > 0) T::fields(op, Randomize{random});
    const std::string text = json_of(op);
    const auto again = op_of(text);
    ASSERT_TRUE(again) << text << ": " << again.error().message();
    EXPECT_EQ(key_of(*again), key_of(op)) << text;
    EXPECT_EQ(to_string(*again), to_string(Op(op))) << text;
    EXPECT_EQ(json_of(*again), text);
  }
}

TEST(Fields, JsonGivesTheSameOpBack) {
#define VOLTA_ROUND_TRIP(Name) json_gives_the_same_op_back<Name>();
  VOLTA_OPS(VOLTA_ROUND_TRIP)
#undef VOLTA_ROUND_TRIP
}

template <typename T>
void every_field_counts() {
  const T before;
  int fields = 0;
  for (;; ++fields) {
    T after;
    ChangeOne change{fields};
    T::fields(after, change);
    if (change.next <= fields) break;  // There is no such field.
    SCOPED_TRACE(json_of(after));
    EXPECT_FALSE(before == after);
    EXPECT_FALSE(Op(before) == Op(after));
    EXPECT_NE(key_of(before), key_of(after));
    EXPECT_NE(json_of(before), json_of(after));
  }
  EXPECT_EQ(fields == 0, std::is_empty_v<T>) << kOpNames[Op(before).index()];
  EXPECT_TRUE(Op(before) == Op(T()));
}

TEST(Fields, EveryFieldCounts){
#define VOLTA_FIELDS_COUNT(Name) every_field_counts<Name>();
    VOLTA_OPS(VOLTA_FIELDS_COUNT)
#undef VOLTA_FIELDS_COUNT
}

TEST(Fields, NamesDiffer){
#define VOLTA_NAMES_DIFFER(Name)                                                           \
  {                                                                                        \
    std::set<std::string_view> names;                                                      \
    Name op;                                                                               \
    Name::fields(op, [&](std::string_view name, const auto&, bool = true) {                \
      EXPECT_TRUE(names.insert(name).second) << #Name << " has two fields named " << name; \
    });                                                                                    \
  }
    VOLTA_OPS(VOLTA_NAMES_DIFFER)
#undef VOLTA_NAMES_DIFFER
}

TEST(Fields, OpsWithTheSameFieldsDiffer) {
  EXPECT_NE(key_of(Softmax{2.0f}), key_of(SoftmaxGrad{2.0f}));
  EXPECT_NE(key_of(Embedding{}), key_of(Argmax{}));
}

TEST(Fields, FloatsCountByTheirBits) {
  EXPECT_FALSE(Fill{0.0f} == Fill{-0.0f});
  EXPECT_TRUE(Fill{NAN} == Fill{NAN});
  EXPECT_FALSE(Fill{1.0f} == Fill{std::nextafter(1.0f, 2.0f)});
}

template <typename Enum>
void words_differ(std::size_t count) {
  std::set<std::string_view> words;
  for (const Enum value : values_of<Enum>()) EXPECT_TRUE(words.insert(word(value)).second);
  EXPECT_EQ(words.size(), count);
}

TEST(Fields, EveryValueOfAnEnumHasAWord) {
  words_differ<UnaryKind>(12);
  words_differ<BinaryKind>(4);
  words_differ<ReduceKind>(3);
  words_differ<NormKind>(2);
  words_differ<Packing>(2);
  words_differ<Quant>(kFormats.size() - 2);  // bf16 and f16 are no integers.
  words_differ<DType>(7);
}

TEST(ReadOp, RefusesWhatIsNoOp) {
  const std::vector<std::pair<const char*, const char*>> rows = {
      {R"([])", "op: expected an object"},
      {R"({})", "op"},
      {R"({"op": "Softmax"})", "fields"},
      {R"({"op": "Sinus", "fields": {}})", "op: op: expected the name of an op, found Sinus"},
      {R"({"op": 3, "fields": {}})", "op: op: expected a string"},
      {R"({"op": "Softmax", "fields": []})", "op: fields: expected an object, found an array"},
      {R"({"op": "Softmax", "fields": {}})", "scale"},
      {R"({"op": "Softmax", "fields": {"scale": true}})", "fields.scale: expected a number"},
      {R"({"op": "Softmax", "fields": {"scale": "much"}})",
       R"(fields.scale: expected a number, "nan", "inf" or "-inf", found much)"},
      {R"({"op": "Softmax", "fields": {"scale": 1e39}})", "fields.scale"},
      {R"({"op": "Softmax", "fields": {"scale": 1, "sacle": 2}})",
       "fields.sacle: there is no such field"},
      {R"({"op": "Argmax", "fields": {"axis": 1}})", "fields.axis: there is no such field"},
      {R"({"op": "Binary", "fields": {"kind": "pow"}})",
       "fields.kind: expected one of add, sub, mul, div, found pow"},
      {R"({"op": "Binary", "fields": {"kind": "?"}})", "expected one of add"},
      {R"({"op": "Reshape", "fields": {"shape": [1, -1]}})", "fields.shape[1]"},
      {R"({"op": "Reshape", "fields": {"shape": [1, 1, 1, 1, 1, 1, 1]}})",
       "fields.shape: expected at most 6 dimensions"},
      {R"({"op": "Permute", "fields": {"perm": [0, 1]}})", "fields.perm: expected 6 numbers"},
      {R"({"op": "Permute", "fields": {"perm": [0, 1, 128, 0, 0, 0]}})", "fields.perm[2]"},
      {R"({"op": "Dropout", "fields": {"p": 0, "stream": -1}})", "fields.stream"},
      {R"({"op": "Dropout", "fields": {"p": 0, "stream": 4294967296}})", "fields.stream"},
      {R"({"op": "KvAppend", "fields": {"shape": 3}})",
       "fields.shape: expected an object, found 3"},
      {R"({"op": "KvAppend", "fields": {"shape": {"heads": 1}}})", "kv_heads"},
  };
  for (const auto& [text, message] : rows) {
    const auto op = op_of(text);
    ASSERT_FALSE(op) << text;
    EXPECT_EQ(op.error().code(), ErrorCode::kInvalidFile) << text;
    EXPECT_THAT(op.error().message(), HasSubstr(message)) << text;
  }
}

Result<TensorSpec> spec_of(const std::string& text) {
  VOLTA_TRY(const JsonValue document, parse_json(text, "spec"));
  return read_spec(JsonRef(document, "spec"));
}

TEST(ReadSpec, GivesBackWhatWasWritten) {
  TensorSpec quantized = f32({96, 64});
  quantized.encoding = {Packing::kPanels, true, 16, 4, Quant::kInt4, 32};
  for (const TensorSpec& spec : {f32({2, 3}), bf16({0}), i32(Shape()), i64({1, 2, 3, 4, 5, 6}),
                                 in_panels(f16({5, 40}), true, 32, 2), quantized}) {
    JsonWriter json;
    json.begin_object();
    write_spec(json, spec);
    json.end_object();
    const auto again = spec_of(json.text());
    ASSERT_TRUE(again) << json.text() << ": " << again.error().message();
    EXPECT_EQ(*again, spec) << json.text();
  }
}

TEST(ReadSpec, RefusesWhatIsNone) {
  const std::string panels =
      R"({"dtype": "f32", "shape": [4, 4], "encoding": {"packing": "panels", "transposed": false, )"
      R"("width": 0, "group": 1, "quant": "none", "block": 0}})";
  const std::vector<std::pair<std::string, const char*>> rows = {
      {R"({"shape": []})", "dtype"},
      {R"({"dtype": "f31", "shape": []})", "dtype: expected one of f32, bf16"},
      {R"({"dtype": "f32", "shape": [70368744177664, 2]})", "larger than the largest tensor"},
      {R"({"dtype": "f32", "shape": [2], "encoding": {}})", "packing"},
      {panels, "only a matrix has panels"},
  };
  for (const auto& [text, message] : rows) {
    const auto spec = spec_of(text);
    ASSERT_FALSE(spec) << text;
    EXPECT_EQ(spec.error().code(), ErrorCode::kInvalidFile) << text;
    EXPECT_THAT(spec.error().message(), HasSubstr(message)) << text;
  }
}

}  // namespace
}  // namespace volta
