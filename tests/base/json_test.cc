#include "base/json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/alloc_counter.h"

namespace volta {
namespace {

JsonValue parse(std::string_view text) {
  Result<JsonValue> value = parse_json(text, "test");
  EXPECT_TRUE(value) << text << ": " << value.error().message();
  return value ? *std::move(value) : JsonValue();
}

std::string parse_error(std::string_view text, const JsonLimits& limits = {}) {
  const Result<JsonValue> value = parse_json(text, "test", limits);
  EXPECT_FALSE(value) << text;
  if (value) return "";
  EXPECT_EQ(value.error().code(), ErrorCode::kInvalidFile);
  EXPECT_TRUE(value.error().message().starts_with("test: ")) << value.error().message();
  return value.error().message();
}

TEST(JsonWriterTest, WritesCompactly) {
  JsonWriter w;
  w.begin_object().field("step", 3).field("ok", true).key("xs").begin_array();
  w.value(1.5).value(uint64_t{18446744073709551615u}).value(int64_t{-4}).null().end_array();
  w.key("empty").begin_object().end_object().key("none").begin_array().end_array();
  w.field("s", "a").key("raw").raw("[1]").end_object();
  EXPECT_EQ(w.text(), R"({"step":3,"ok":true,"xs":[1.5,18446744073709551615,-4,null],"empty":{},)"
                      R"("none":[],"s":"a","raw":[1]})");
  const std::string text = w.text();
  EXPECT_EQ(std::move(w).take(), text);
}

TEST(JsonWriterTest, Indents) {
  JsonWriter w(2);
  w.begin_object().field("a", 1).key("b").begin_array().value(2).value(3).end_array();
  w.key("c").begin_array().end_array().end_object();
  EXPECT_EQ(w.text(), "{\n  \"a\": 1,\n  \"b\": [\n    2,\n    3\n  ],\n  \"c\": []\n}");
}

TEST(JsonWriterTest, EscapesText) {
  JsonWriter w;
  w.value(std::string("a\"b\\c\nd\te\x01\x7F\xC3\xA9\xFF"));
  EXPECT_EQ(w.text(), "\"a\\\"b\\\\c\\nd\\te\\u0001\x7F\xC3\xA9\xEF\xBF\xBD\"");
}

// As in Python's bytes.decode(errors="replace"): one U+FFFD for the beginning of a character.
TEST(JsonWriterTest, BrokenCharactersBecomeOneReplacementEach) {
  const std::string r = "\xEF\xBF\xBD";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\xE2\x82", r},
      {"\xE2\x82x", r + "x"},
      {"\xE2(\xA1", r + "(" + r},
      {"\xF0\x9F\x98 ", r + " "},
      {"\xF0\x9F\xF0\x9F\x98\x80", r + "\xF0\x9F\x98\x80"},
      {"\xC3\xC3", r + r},
      {"\x80\x80", r + r},
      {"\xE0\x80", r + r},
      {"\xED\xA0\x80", r + r + r},
      {"\xED\x9F", r},
      {"\xF0\x8F", r + r},
      {"\xF4\x90\x80\x80", r + r + r + r},
      {"\xF4\x8F\xBF", r},
      {"\xF5\x80", r + r},
  };
  for (const auto& [bytes, expected] : cases) {
    JsonWriter w;
    w.value(bytes);
    EXPECT_EQ(w.text(), '"' + expected + '"') << testing::PrintToString(bytes);
  }
}

TEST(JsonWriterTest, NonFiniteNumbersAreNull) {
  JsonWriter w;
  w.begin_array().value(NAN).value(HUGE_VAL).value(-HUGE_VALF).value(0.1f).value(0.1).end_array();
  EXPECT_EQ(w.text(), "[null,null,null,0.1,0.1]");
}

RC_GTEST_PROP(JsonProperties, TextReadsBack, (const std::vector<uint8_t>& bytes)) {
  std::string text;  // Arbitrary valid UTF-8: Latin-1 bytes as code points.
  for (const uint8_t b : bytes) {
    if (b < 0x80) {
      text += static_cast<char>(b);
    } else {
      text += static_cast<char>(0xC0 | (b >> 6));
      text += static_cast<char>(0x80 | (b & 0x3F));
    }
  }
  JsonWriter w;
  w.begin_object().field(text, text).end_object();
  const Result<JsonValue> value = parse_json(w.text(), "test");
  RC_ASSERT(value.has_value());
  const JsonValue* found = value->find(text);
  RC_ASSERT(found != nullptr);
  RC_ASSERT(*found->if_string() == text);
}

RC_GTEST_PROP(JsonProperties, NumbersReadBack, (int64_t i, double d, float f)) {
  RC_PRE(std::isfinite(d) && std::isfinite(f));
  JsonWriter w;
  w.begin_array().value(i).value(d).value(f).end_array();
  const Result<JsonValue> value = parse_json(w.text(), "test");
  RC_ASSERT(value.has_value());
  const auto elements = JsonRef(*value, "test").elements();
  RC_ASSERT((*elements)[0].as_int().value() == i);
  RC_ASSERT((*elements)[1].as_float().value() == d);
  RC_ASSERT(static_cast<float>((*elements)[2].as_float().value()) == f);
}

TEST(JsonParseTest, KnowsEveryType) {
  const JsonValue v =
      parse(R"( {"n":null,"t":true,"i":-7,"d":1.5,"s":"x\u00e9","a":[1,[]],"o":{}} )");
  EXPECT_EQ(v.type_name(), "an object");
  EXPECT_TRUE(v.find("n")->is_null());
  EXPECT_EQ(v.find("n")->type_name(), "null");
  EXPECT_EQ(*v.find("t")->if_bool(), true);
  EXPECT_EQ(v.find("t")->type_name(), "a boolean");
  EXPECT_EQ(*v.find("i")->if_int(), -7);
  EXPECT_EQ(v.find("i")->type_name(), "an integer");
  EXPECT_EQ(*v.find("d")->if_double(), 1.5);
  EXPECT_EQ(v.find("d")->type_name(), "a number");
  EXPECT_EQ(*v.find("s")->if_string(), "x\xC3\xA9");
  EXPECT_EQ(v.find("s")->type_name(), "a string");
  EXPECT_EQ(v.find("a")->if_array()->size(), 2u);
  EXPECT_EQ(v.find("a")->type_name(), "an array");
  EXPECT_TRUE(v.find("o")->if_object()->empty());
  EXPECT_EQ(v.find("missing"), nullptr);
  EXPECT_EQ(v.find("a")->find("x"), nullptr);
  EXPECT_EQ(v.find("i")->if_string(), nullptr);
}

TEST(JsonParseTest, TakesScalarDocuments) {
  EXPECT_EQ(*parse("3").if_int(), 3);
  EXPECT_EQ(*parse("\"a\"").if_string(), "a");
  EXPECT_TRUE(parse(" null ").is_null());
}

TEST(JsonParseTest, LongIntegersBecomeDoubles) {
  EXPECT_EQ(*parse("9223372036854775807").if_int(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(*parse("9223372036854775808").if_double(), 9223372036854775808.0);
  EXPECT_EQ(*parse("1000000000000000019884624838656").if_double(), 1e30);
  // Only numbers that need it change, never text, fractions or exponents.
  const JsonValue v =
      parse(R"({"a":-1000000000000000019884624838656,"b":"1000000000000000019884624838656\"5",)"
            R"("c":[0.1234567890123456789012345,12345678901234567890.5,1e5,1.5e+10,7],)"
            R"("d":[1234567890123456789,-1234567890123456789,-9223372036854775808,)"
            R"(-9223372036854775809,18446744073709551616]})");
  EXPECT_EQ(*v.find("a")->if_double(), -1e30);
  EXPECT_EQ(*v.find("b")->if_string(), "1000000000000000019884624838656\"5");
  const JsonValue::Array& c = *v.find("c")->if_array();
  EXPECT_EQ(*c[0].if_double(), 0.1234567890123456789012345);
  EXPECT_EQ(*c[1].if_double(), 12345678901234567890.5);
  EXPECT_EQ(*c[2].if_double(), 1e5);
  EXPECT_EQ(*c[3].if_double(), 1.5e10);
  EXPECT_EQ(*c[4].if_int(), 7);
  const JsonValue::Array& d = *v.find("d")->if_array();
  ASSERT_NE(d[0].if_int(), nullptr);
  EXPECT_EQ(*d[0].if_int(), 1234567890123456789);
  EXPECT_EQ(*d[1].if_int(), -1234567890123456789);
  EXPECT_EQ(*d[2].if_int(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(*d[3].if_double(), -9223372036854775808.0);
  EXPECT_EQ(*d[4].if_double(), 18446744073709551616.0);
}

TEST(JsonParseTest, RefusesWhatIsNotJson) {
  for (const std::string_view bad : {"",
                                     "  ",
                                     "{",
                                     "}",
                                     "[1,]",
                                     "[1 2]",
                                     "{\"a\":}",
                                     "{\"a\" 1}",
                                     "{a:1}",
                                     "{'a':1}",
                                     "nul",
                                     "nulll",
                                     "tru",
                                     "01",
                                     "+1",
                                     "1.",
                                     ".5",
                                     "1e",
                                     "0x1",
                                     "NaN",
                                     "Infinity",
                                     "\"a",
                                     "\"\x01\"",
                                     "\"\\x\"",
                                     "\"\\ud800\"",
                                     "[1]]",
                                     "{} {}",
                                     "1 2",
                                     "\"\xFF\"",
                                     "\"\xED\xA0\x80\"",
                                     "1e999",
                                     "-",
                                     "[",
                                     "// c\n1",
                                     "00000000000000000000000001",
                                     "1000000000000000000000000000000000x"}) {
    parse_error(bad);
  }
  EXPECT_NE(parse_error("").find("empty"), std::string::npos);
  EXPECT_NE(parse_error("\"\xFF\"").find("UTF-8"), std::string::npos);
  EXPECT_NE(parse_error(std::string("\xFF\xFE{\0}\0", 6)).find("iconv -f UTF-16 -t UTF-8"),
            std::string::npos);
  EXPECT_NE(parse_error("{\"a\": \"b").find("cut off"), std::string::npos);
  EXPECT_NE(parse_error("1e999").find("number"), std::string::npos);
}

TEST(JsonParseTest, RefusesRepeatedKeys) {
  EXPECT_NE(parse_error(R"({"a":1,"b":2,"a":3})").find("'a' is repeated"), std::string::npos);
  EXPECT_NE(parse_error(R"([{"x":{"k":1,"\u006b":2}}])").find("'k'"), std::string::npos);
  parse(R"([{"a":1},{"a":2}])");
}

TEST(JsonParseTest, HoldsItsLimits) {
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') +
           std::string(static_cast<size_t>(depth), ']');
  };
  parse(nested(64));
  EXPECT_NE(parse_error(nested(65)).find("too deep"), std::string::npos);
  parse_error(nested(100'000));
  parse_error(std::string(100'000, '['));
  EXPECT_NE(parse_error("[1,2,3]", {.max_values = 3}).find("more than the 3 JSON values"),
            std::string::npos);
  EXPECT_TRUE(parse_json("[1,2,3]", "test", {.max_values = 4}));
  parse_error("[1,2,3,4]", {.max_values = 4});
  EXPECT_NE(parse_error(R"([[], [1,2,3]])", {.max_array = 2}).find("more elements than the 2"),
            std::string::npos);
  EXPECT_TRUE(parse_json("[1,2,3]", "test", {.max_array = 3}));
  EXPECT_NE(parse_error("[1,2,3]", {.max_bytes = 6}).find("6 allowed"), std::string::npos);
}

int64_t count_values(const JsonValue& value) {
  int64_t count = 1;
  if (const JsonValue::Array* elements = value.if_array()) {
    for (const JsonValue& element : *elements) count += count_values(element);
  }
  if (const JsonValue::Object* members = value.if_object()) {
    for (const auto& [key, member] : *members) count += count_values(member);
  }
  return count;
}

TEST(JsonParseTest, CountsEveryValueOnce) {
  for (const std::string_view text :
       {"0", "[]", "{ }", "[[ ],{}, [\n],[1]]", R"("[,{,\"[,,")", R"(["\\",1,"\\\",[",2])",
        R"({"a,b":1,"[{":[{"\"":null}, "," , {"c":[]}],"d":""})", "[1234567890123456789012,2]"}) {
    SCOPED_TRACE(text);
    const int64_t count = count_values(parse(text));
    EXPECT_TRUE(parse_json(text, "test", {.max_values = count}));
    if (count > 1) parse_error(text, {.max_values = count - 1});
  }
}

TEST(JsonParseTest, CountsValuesBeforeItTakesMemory) {
  if (!test::can_count_allocations()) GTEST_SKIP() << "allocations cannot be counted here";
  std::string text = "[";
  for (int i = 0; i < 100'000; ++i) text += "0,";
  text += "0]";
  const test::AllocationCounter counter;
  const bool parsed = parse_json(text, "test", {.max_values = 100'000}).has_value();
  const int64_t bytes = counter.bytes();
  EXPECT_FALSE(parsed);
  EXPECT_LT(bytes, 10'000);
}

TEST(JsonParseTest, InterruptedParsingEnds) {
  const auto repeat = [](std::string_view part, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += fmt::format("{}\"{}\"{}", i > 0 ? "," : "", i, part);
    return text;
  };
  const std::string array = "[" + repeat("", 100'000) + "]";
  const std::string object = "{" + repeat(":0", 100'000) + "}";
  const std::string text = R"({"brackets":")" + std::string(4 << 20, '[') + R"("})";
  // Questions: one for some thousand values, one a part of the keys, one a MiB of counting.
  for (const auto& [document, least] :
       {std::pair(array, 20), std::pair(object, 25), std::pair(text, 4)}) {
    const JsonLimits limits{.max_values = 200'000};
    int questions = 0;
    ASSERT_TRUE(parse_json(document, "test", limits, [&] { return ++questions < 0; }));
    EXPECT_GE(questions, least);
    for (int last = 1; last <= questions; ++last) {
      int asked = 0;
      const auto value = parse_json(document, "test", limits, [&] { return ++asked == last; });
      ASSERT_FALSE(value);
      EXPECT_EQ(value.error().code(), ErrorCode::kInterrupted);
      EXPECT_EQ(asked, last);
    }
  }
}

TEST(JsonParseTest, WidensSomeLongIntegersOnly) {
  const auto numbers = [](int count) {
    std::string text = "[0";
    for (int i = 0; i < count; ++i) text += ",1234567890123456789012";
    return text + "]";
  };
  EXPECT_TRUE(parse_json(numbers(1000), "test"));
  EXPECT_NE(parse_error(numbers(1001)).find("a number is malformed or too large"),
            std::string::npos);
}

TEST(JsonParseTest, FindsRepeatedKeysInLargeObjects) {
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i) text += fmt::format("\"{}\":0,", i * 7919 % 100'003);
  EXPECT_TRUE(parse_json(text + "\"last\":0}", "test"));
  EXPECT_NE(parse_error(text + "\"7919\":0}").find("key '7919' is repeated"), std::string::npos);
}

RC_GTEST_PROP(JsonProperties, AnyBytesAreAValueOrAnError, (const std::string& text)) {
  const Result<JsonValue> value = parse_json(text, "test");
  if (!value) RC_ASSERT(value.error().code() == ErrorCode::kInvalidFile);
}

class JsonRefTest : public testing::Test {
 protected:
  const JsonValue value_ = parse(
      R"({"i":5,"f":0.5,"b":true,"s":"text","null":null,"rope":{"theta":"x"},"list":[1,{"k":2}]})");
  const JsonRef root_{value_, "config.json"};
};

TEST_F(JsonRefTest, GetsTypedValues) {
  EXPECT_EQ(*root_.get_int("i"), 5);
  EXPECT_EQ(*root_.get_float("f"), 0.5);
  EXPECT_EQ(*root_.get_float("i"), 5.0);
  EXPECT_EQ(*root_.get_bool("b"), true);
  EXPECT_EQ(*root_.get_string("s"), "text");
  EXPECT_EQ(root_.path(), "config.json");
  EXPECT_EQ(&root_.node(), &value_);
}

TEST_F(JsonRefTest, FallsBackOnlyWhenMissingOrNull) {
  EXPECT_EQ(*root_.get_int_or("i", 9), 5);
  EXPECT_EQ(*root_.get_int_or("missing", 9), 9);
  EXPECT_EQ(*root_.get_int_or("null", 9), 9);
  EXPECT_EQ(*root_.get_float_or("f", 9), 0.5);
  EXPECT_EQ(*root_.get_float_or("missing", 9), 9.0);
  EXPECT_EQ(*root_.get_bool_or("b", false), true);
  EXPECT_EQ(*root_.get_bool_or("missing", true), true);
  EXPECT_EQ(*root_.get_string_or("s", "d"), "text");
  EXPECT_EQ(*root_.get_string_or("missing", "d"), "d");
  EXPECT_FALSE(root_.get_int_or("s", 9));
  EXPECT_FALSE(root_.get_float_or("s", 9));
  EXPECT_FALSE(root_.get_bool_or("s", true));
  EXPECT_FALSE(root_.get_string_or("i", "d"));
}

TEST_F(JsonRefTest, ErrorsCarryThePath) {
  const auto message = [](const auto& result) {
    EXPECT_FALSE(result);
    EXPECT_EQ(result.error().code(), ErrorCode::kInvalidFile);
    return result.error().message();
  };
  EXPECT_EQ(message(root_.get_int("missing")), "config.json: 'missing' is missing");
  EXPECT_EQ(message(root_.get_int("s")), "config.json: s: expected an integer, found a string");
  EXPECT_EQ(message(root_.get_int("f")), "config.json: f: expected an integer, found a number");
  EXPECT_EQ(message(root_.get_int("i", 6, 10)), "config.json: i: 5 is not an integer from 6 to 10");
  EXPECT_EQ(message(root_.get_float("f", 1, 2)), "config.json: f: 0.5 is not a number from 1 to 2");
  EXPECT_EQ(message(root_.get_bool("i")), "config.json: i: expected a boolean, found an integer");
  EXPECT_EQ(message(root_.get_string("i")), "config.json: i: expected a string, found an integer");
  const JsonRef rope = *root_.member("rope");
  EXPECT_EQ(message(rope.get_float("theta")),
            "config.json: rope.theta: expected a number, found a string");
  const std::vector<JsonRef> list = *root_.member("list")->elements();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(*list[0].as_int(), 1);
  EXPECT_EQ(message(list[1].get_string("k")),
            "config.json: list[1].k: expected a string, found an integer");
  EXPECT_EQ(message(list[0].get_int("k")),
            "config.json: list[0]: expected an object, found an integer");
  EXPECT_EQ(message(rope.elements()), "config.json: rope: expected an array, found an object");
  // A loop over members goes from value to value.
  for (const auto& [key, value] : *root_.node().if_object()) {
    EXPECT_EQ(root_.at(value).path(), "config.json: " + key);
  }
  const JsonValue elsewhere(int64_t{1});
  EXPECT_EQ(root_.at(elsewhere).path(), "config.json");
}

// What is right costs no text, however many values a document has.
TEST(JsonRef, GoodValuesCostNoPaths) {
  if (!test::can_count_allocations()) GTEST_SKIP() << "allocations cannot be counted here";
  std::string text = R"({"a_member_with_a_long_name": [0)";
  for (int i = 1; i < 10'000; ++i) text += ",0";
  const auto value = parse_json(text + "]}", "a document with a long name");
  ASSERT_TRUE(value);
  const JsonRef root(*value, "a document with a long name");
  const test::AllocationCounter counter;
  int64_t sum = 0;
  {
    const auto list = root.member("a_member_with_a_long_name")->elements();
    for (const JsonRef& element : *list) sum += *element.as_int();
  }
  const int64_t allocations = counter.count();
  EXPECT_EQ(sum, 0);
  EXPECT_LE(allocations, 2);
}

TEST(JsonValue, LeavesHaveATextForMessages) {
  const auto text = [](const char* json) { return parse_json(json, "test")->leaf_text(); };
  EXPECT_EQ(text("true"), "true");
  EXPECT_EQ(text("-3"), "-3");
  EXPECT_EQ(text("0.5"), "0.5");
  EXPECT_EQ(text("\"word\""), "word");
  EXPECT_EQ(text("null"), "null");
  EXPECT_EQ(text("[1]"), "an array");
}

}  // namespace
}  // namespace volta
