// Text: UTF-8, and formatting and parsing of numbers and units.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace volta {

/// The shortest decimal form of a number that reads back as the same number. It has a fraction or
/// an exponent, so that parsers of other languages do not take it for an integer: "1.0", "0.1",
/// "1e+20", "inf", "nan".
std::string format_real(double number);

/// One decoded code point and the bytes it took (1 to 4).
struct CodePoint {
  char32_t value;
  int length;
};

/// The code point at the start of `text`; nothing if `text` is empty or does not start with valid
/// UTF-8 (overlong forms, surrogates and values above U+10FFFF are invalid, as in RFC 3629).
std::optional<CodePoint> decode_utf8(std::string_view text);

/// The offset of the first byte that is not part of valid UTF-8; nothing if all of `text` is valid.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

/// The name that iconv has for the encoding of a text that is clearly not UTF-8: "UTF-16" or
/// "UTF-32" if the text begins with their byte order mark, "UTF-16LE" or "UTF-16BE" if every second
/// byte of its beginning is 0. Nothing for all other texts, whether they are UTF-8 or not.
std::optional<std::string_view> find_wide_encoding(std::string_view text);

/// What is wrong with a file's text that must be UTF-8, with a command that converts it; to follow
/// the file's name in a message: "byte 7 is not UTF-8; ...", "it is UTF-16, not UTF-8; ...".
/// Nothing if it can be read as UTF-8. Of a long text that is checked piece by piece, `before` is
/// the number of bytes before this piece.
std::optional<std::string> utf8_mistake(std::string_view text, std::size_t before = 0);

/// A number with a noun that has its plural with an s: "1 layer", "0 layers", "12 layers".
std::string counted(std::int64_t count, std::string_view noun);

/// The text without the mark (U+FEFF) that some editors write at the beginning of UTF-8 files.
std::string_view skip_byte_order_mark(std::string_view text);

/// Appends a code point; an invalid one (surrogate, too large) becomes U+FFFD.
void append_utf8(std::string& out, char32_t code_point);

/// Parses all of `text` as a decimal integer from `min` to `max`. `what` names it in the message:
/// "--steps: '12x' is not an integer from 1 to 1000". kInvalidArgument.
template <std::integral T>
Result<T> parse_int(std::string_view text, std::string_view what,
                    T min = std::numeric_limits<T>::lowest(),
                    T max = std::numeric_limits<T>::max());

/// Parses all of `text` as a finite number from `min` to `max`, independently of the locale.
/// kInvalidArgument.
Result<double> parse_float(std::string_view text, std::string_view what,
                           double min = std::numeric_limits<double>::lowest(),
                           double max = std::numeric_limits<double>::max());

/// Makes `text` safe for a terminal. Characters that control the terminal, hide text or change its
/// order are escaped as in JSON strings, for example as "\u001b". These are control characters
/// except line breaks and tabs (including the delete character and U+0080 to U+009F), and
/// characters that override or isolate the direction of writing (U+202A to U+202E, U+2066 to
/// U+2069). Bytes that are not UTF-8 are escaped like "\x9b".
std::string escape_controls(std::string_view text);

/// "640 B", "1.5 KiB", "12.0 MiB", ...
std::string format_bytes(std::int64_t bytes);

/// "850 ns", "12.3 us", "4.56 ms", "7.89 s", "3m 05s", "2h 03m".
std::string format_duration(double seconds);

/// The time that remains, in whole seconds: "under 1 s left", "12 s left", "3m 05s left".
std::string time_left(double seconds);

/// "950", "12.3K", "4.56M", ...: for counts of parameters and tokens.
std::string format_count(std::int64_t count);

/// The text as one word for a shell's command line. It is unchanged if it has no characters with a
/// meaning for the shell, otherwise it is in single quotes.
std::string shell_quoted(std::string_view text);

namespace internal {
Result<std::int64_t> parse_int64(std::string_view text, std::string_view what, std::int64_t min,
                                 std::int64_t max);
Result<std::uint64_t> parse_uint64(std::string_view text, std::string_view what, std::uint64_t min,
                                   std::uint64_t max);
}  // namespace internal

template <std::integral T>
Result<T> parse_int(std::string_view text, std::string_view what, T min, T max) {
  if constexpr (std::signed_integral<T>) {
    VOLTA_TRY(const std::int64_t value, internal::parse_int64(text, what, min, max));
    return static_cast<T>(value);
  } else {
    VOLTA_TRY(const std::uint64_t value, internal::parse_uint64(text, what, min, max));
    return static_cast<T>(value);
  }
}

}  // namespace volta
