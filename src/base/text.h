// Text: UTF-8, numbers, and the units people read.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace volta {

/// A real number in as few digits as tell it apart, with a fraction or an exponent, so that readers
/// of other languages see that it is no integer: "1.0", "0.1", "1e+20", "inf", "nan".
std::string format_real(double number);

/// One decoded code point and the bytes it took (1 to 4).
struct CodePoint {
  char32_t value;
  int length;
};

/// The code point at the start of `text`; nothing when `text` is empty or does not start with valid
/// UTF-8 (overlong forms, surrogates and values above U+10FFFF are invalid, as in RFC 3629).
std::optional<CodePoint> decode_utf8(std::string_view text);

/// The offset of the first byte that is not part of valid UTF-8; nothing when all of it is valid.
std::optional<size_t> find_invalid_utf8(std::string_view text);

/// Appends a code point; an invalid one (surrogate, too large) becomes U+FFFD.
void append_utf8(std::string& out, char32_t code_point);

/// All of `text` as an integer from `min` to `max`, in decimal. `what` names it in the message:
/// "--steps: '12x' is not an integer from 1 to 1000". kInvalidArgument.
template <std::integral T>
Result<T> parse_int(std::string_view text, std::string_view what,
                    T min = std::numeric_limits<T>::lowest(),
                    T max = std::numeric_limits<T>::max());

/// All of `text` as a finite number from `min` to `max`, whatever the locale. kInvalidArgument.
Result<double> parse_float(std::string_view text, std::string_view what,
                           double min = std::numeric_limits<double>::lowest(),
                           double max = std::numeric_limits<double>::max());

/// `text` as a terminal may be given it: characters that would steer the terminal, hide text or
/// change its order come as "\u001b", as in JSON strings: control characters but for line breaks
/// and tabs (also the delete character and U+0080 to U+009F), and those that override or isolate a
/// direction of writing (U+202A to U+202E, U+2066 to U+2069). Bytes that are not UTF-8 come as
/// "\x9b".
std::string escape_controls(std::string_view text);

/// "640 B", "1.5 KiB", "12.0 MiB", ...
std::string format_bytes(int64_t bytes);

/// "850 ns", "12.3 us", "4.56 ms", "7.89 s", "3m 05s", "2h 03m".
std::string format_duration(double seconds);

/// "950", "12.3K", "4.56M", ...: counts of parameters and tokens.
std::string format_count(int64_t count);

/// The text as one word of a shell's command line: as it is where nothing in it means anything to
/// a shell, in single quotes otherwise.
std::string shell_quoted(std::string_view text);

namespace internal {
Result<int64_t> parse_int64(std::string_view text, std::string_view what, int64_t min, int64_t max);
Result<uint64_t> parse_uint64(std::string_view text, std::string_view what, uint64_t min,
                              uint64_t max);
}  // namespace internal

template <std::integral T>
Result<T> parse_int(std::string_view text, std::string_view what, T min, T max) {
  if constexpr (std::signed_integral<T>) {
    VOLTA_TRY(const int64_t value, internal::parse_int64(text, what, min, max));
    return static_cast<T>(value);
  } else {
    VOLTA_TRY(const uint64_t value, internal::parse_uint64(text, what, min, max));
    return static_cast<T>(value);
  }
}

}  // namespace volta
