#include "base/text.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <string>
#include <string_view>

namespace volta {
namespace {

TEST(Utf8Test, DecodesEveryLength) {
  const auto decode = [](std::string_view text) { return decode_utf8(text)->value; };
  EXPECT_EQ(decode("A"), U'A');
  EXPECT_EQ(decode("\xC3\xA9"), U'\u00E9');
  EXPECT_EQ(decode("\xE2\x82\xAC"), U'\u20AC');
  EXPECT_EQ(decode("\xF0\x9F\x98\x80"), U'\U0001F600');
  EXPECT_EQ(decode("\xF4\x8F\xBF\xBF"), char32_t{0x10FFFF});
  EXPECT_EQ(decode(std::string_view("\0", 1)), U'\0');
  EXPECT_EQ(decode_utf8("\xE2\x82\xACxyz")->length, 3);
}

TEST(Utf8Test, RejectsMalformedText) {
  for (const std::string_view bad : {
           "", "\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xC3", "\xC3(", "\xE2\x82", "\xE2(\xA1",
           "\xE0\x80\x80",              // Overlong.
           "\xED\xA0\x80",              // A surrogate.
           "\xF0\x80\x80\x80",          // Overlong.
           "\xF4\x90\x80\x80",          // Above U+10FFFF.
           "\xF5\x80\x80\x80", "\xFF",  // Never a first byte.
       }) {
    EXPECT_FALSE(decode_utf8(bad)) << testing::PrintToString(bad);
  }
}

TEST(Utf8Test, TellsUtf16FromOtherTexts) {
  using namespace std::string_view_literals;
  EXPECT_EQ(find_wide_encoding("\xFF\xFEh\0i\0"sv), "UTF-16");
  EXPECT_EQ(find_wide_encoding("\xFE\xFF\0h\0i"sv), "UTF-16");
  EXPECT_EQ(find_wide_encoding("\xFF\xFE\0\0h\0\0\0"sv), "UTF-32");
  EXPECT_EQ(find_wide_encoding("h\0i\0\n\0"sv), "UTF-16LE");
  EXPECT_EQ(find_wide_encoding("\0h\0i\0\n"sv), "UTF-16BE");
  EXPECT_EQ(find_wide_encoding("a\0b\0\x65\x67\xe5\x65"sv), std::nullopt);  // Half of it.
  for (const std::string_view other :
       {""sv, "a"sv, "plain text"sv, "\0\0\0\0"sv, "a\0"sv, "one\0two\0"sv, "\xFFlatin"sv}) {
    EXPECT_EQ(find_wide_encoding(other), std::nullopt) << testing::PrintToString(other);
  }
  EXPECT_EQ(utf8_mistake("plain \xC3\xA9"), std::nullopt);
  EXPECT_EQ(utf8_mistake("h\0i\0"sv, 10), std::nullopt);  // Not the beginning of a file.
  EXPECT_TRUE(utf8_mistake("a\xFF", 10)->starts_with("byte 11 "));
  EXPECT_EQ(
      utf8_mistake("a\xFF"),
      "byte 1 is not UTF-8; convert it, for example with `iconv -f LATIN1 -t UTF-8 OLD > NEW`");
  EXPECT_EQ(utf8_mistake("h\0i\0"sv),
            "it is UTF-16, not UTF-8; convert it with `iconv -f UTF-16LE -t UTF-8 OLD > NEW`");
}

TEST(Utf8Test, AByteOrderMarkIsSkipped) {
  EXPECT_EQ(skip_byte_order_mark("\xEF\xBB\xBF{}"), "{}");
  EXPECT_EQ(skip_byte_order_mark("{}"), "{}");
  EXPECT_EQ(skip_byte_order_mark("\xEF\xBB"), "\xEF\xBB");
}

TEST(Utf8Test, FindsTheFirstBadByte) {
  EXPECT_FALSE(find_invalid_utf8(""));
  EXPECT_FALSE(find_invalid_utf8("plain"));
  EXPECT_EQ(find_invalid_utf8("ab\xC3\xA9\xFFz"), 4u);
  EXPECT_EQ(find_invalid_utf8("ab\xE2\x82"), 2u);
  EXPECT_FALSE(find_invalid_utf8("\xC3\xA9"));
  EXPECT_EQ(find_invalid_utf8("\xA9"), 0u);
}

TEST(Utf8Test, EncodesEveryLength) {
  std::string out;
  for (const char32_t c : {U'A', U'\u00E9', U'\u20AC', U'\U0001F600'}) append_utf8(out, c);
  EXPECT_EQ(out, "A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
}

TEST(Utf8Test, InvalidCodePointsBecomeTheReplacement) {
  std::string out;
  append_utf8(out, 0xD800);
  append_utf8(out, 0x110000);
  EXPECT_EQ(out, "\xEF\xBF\xBD\xEF\xBF\xBD");
}

RC_GTEST_PROP(Utf8Properties, EncodingAndDecodingAreInverse, ()) {
  const char32_t c = *rc::gen::inRange<uint32_t>(0, 0x110000);
  RC_PRE(c < 0xD800 || c > 0xDFFF);
  std::string text;
  append_utf8(text, c);
  const auto point = decode_utf8(text);
  RC_ASSERT(point.has_value());
  RC_ASSERT(point->value == c);
  RC_ASSERT(static_cast<size_t>(point->length) == text.size());
  RC_ASSERT(!find_invalid_utf8(text));
  RC_ASSERT(find_invalid_utf8(text.substr(0, text.size() - 1)).has_value() == (text.size() > 1));
}

TEST(ParseIntTest, TakesWholeNumbersInRange) {
  EXPECT_EQ(*parse_int<int>("42", "--n"), 42);
  EXPECT_EQ(*parse_int<int64_t>("-9223372036854775808", "--n"),
            std::numeric_limits<int64_t>::min());
  EXPECT_EQ(*parse_int<uint64_t>("18446744073709551615", "--n"),
            std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(*parse_int<uint8_t>("255", "--n"), 255);
  EXPECT_EQ(*parse_int<int>("5", "--n", 5, 5), 5);
}

TEST(ParseIntTest, RefusesTheRest) {
  for (const std::string_view bad :
       {"", " 1", "1 ", "+1", "0x10", "1.0", "12a", "a", "-", "9223372036854775808"}) {
    EXPECT_EQ(parse_int<int64_t>(bad, "--n").error().code(), ErrorCode::kInvalidArgument) << bad;
  }
  EXPECT_FALSE(parse_int<uint8_t>("256", "--n"));
  EXPECT_FALSE(parse_int<uint32_t>("-1", "--n"));
  EXPECT_EQ(parse_int<int>("12x", "--steps", 1, 1000).error().message(),
            "--steps: '12x' is not an integer from 1 to 1000");
  EXPECT_FALSE(parse_int<int>("1001", "--steps", 1, 1000));
}

TEST(ParseFloatTest, TakesFiniteNumbersInRange) {
  EXPECT_EQ(*parse_float("0.5", "--lr"), 0.5);
  EXPECT_EQ(*parse_float("-1e-3", "--lr"), -1e-3);
  EXPECT_EQ(*parse_float("3", "--lr", 3, 3), 3.0);
  for (const std::string_view bad :
       {"", "x", "1,5", "1.5f", "inf", "nan", "1e999", " 1", "0x1p3"}) {
    EXPECT_EQ(parse_float(bad, "--lr").error().code(), ErrorCode::kInvalidArgument) << bad;
  }
  EXPECT_EQ(parse_float("2", "--dropout", 0, 1).error().message(),
            "--dropout: '2' is not a number from 0 to 1");
}

TEST(FormatTest, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(format_bytes(int64_t{12} << 20), "12.0 MiB");
  EXPECT_EQ(format_bytes(std::numeric_limits<int64_t>::max()), "8.0 EiB");
  EXPECT_EQ(format_bytes(-2048), "-2.0 KiB");
}

TEST(FormatTest, Durations) {
  EXPECT_EQ(format_duration(0), "0 ns");
  EXPECT_EQ(format_duration(850e-9), "850 ns");
  EXPECT_EQ(format_duration(12.34e-6), "12.3 us");
  EXPECT_EQ(format_duration(4.564e-3), "4.56 ms");
  EXPECT_EQ(format_duration(7.891), "7.89 s");
  EXPECT_EQ(format_duration(59.999), "1m 00s");
  EXPECT_EQ(format_duration(185), "3m 05s");
  EXPECT_EQ(format_duration(3599.9), "1h 00m");
  EXPECT_EQ(format_duration(2 * 3600 + 3 * 60 + 9), "2h 03m");
  EXPECT_EQ(format_duration(-7.891), "-7.89 s");
  EXPECT_EQ(format_duration(1e300), "forever");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::infinity()), "unknown");
}

TEST(FormatTest, TimesThatRemainAreWholeSeconds) {
  EXPECT_EQ(time_left(34e-9), "under 1 s left");
  EXPECT_EQ(time_left(0.2), "under 1 s left");
  EXPECT_EQ(time_left(0.5), "1 s left");
  EXPECT_EQ(time_left(12.3), "12 s left");
  EXPECT_EQ(time_left(59.6), "1m 00s left");
  EXPECT_EQ(time_left(7200), "2h 00m left");
  EXPECT_EQ(time_left(-1), "under 1 s left");
  EXPECT_EQ(time_left(std::numeric_limits<double>::quiet_NaN()), "under 1 s left");
  EXPECT_EQ(time_left(std::numeric_limits<double>::infinity()), "unknown left");
}

TEST(FormatTest, Counts) {
  EXPECT_EQ(format_count(950), "950");
  EXPECT_EQ(format_count(1000), "1.00K");
  EXPECT_EQ(format_count(12'345), "12.3K");
  EXPECT_EQ(format_count(999'999), "1.00M");
  EXPECT_EQ(format_count(124'439'808), "124M");
  EXPECT_EQ(format_count(1'500'000'000), "1.50B");
  EXPECT_EQ(format_count(-4560), "-4.56K");
}

TEST(ShellQuotedTest, KeepsAWordOneWord) {
  EXPECT_EQ(shell_quoted("runs/a-1.b_2"), "runs/a-1.b_2");
  EXPECT_EQ(shell_quoted("my run"), "'my run'");
  EXPECT_EQ(shell_quoted("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_quoted("$(x)"), "'$(x)'");
  EXPECT_EQ(shell_quoted(""), "''");
}

TEST(EscapeControlsTest, NothingSteersATerminal) {
  EXPECT_EQ(escape_controls("plain text,\ttabs\nand lines; caf\u00e9 \u65e5 \U0001F600"),
            "plain text,\ttabs\nand lines; caf\u00e9 \u65e5 \U0001F600");
  EXPECT_EQ(escape_controls("\x1b]52;c;eA==\x07"), "\\u001b]52;c;eA==\\u0007");
  EXPECT_EQ(escape_controls("a\r\b\x7f"), "a\\u000d\\u0008\\u007f");
  EXPECT_EQ(escape_controls(std::string_view("\0", 1)), "\\u0000");
  EXPECT_EQ(escape_controls("\xc2\x80\xc2\x9b\xc2\x9f\xc2\xa0"), "\\u0080\\u009b\\u009f\xc2\xa0");
  EXPECT_EQ(escape_controls("\u202a\u202e\u2066\u2069\u200e"),
            "\\u202a\\u202e\\u2066\\u2069\u200e");
  EXPECT_EQ(escape_controls("a\x9b"
                            "b\xe4\xb8"),
            "a\\x9bb\\xe4\\xb8");  // Not UTF-8.
}

}  // namespace
}  // namespace volta
