// UTF-8, numbers and units.
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <memory>
#include <system_error>

namespace volta {

namespace {

// The content of the first byte of a UTF-8 sequence: the length of the sequence (0 if the byte
// cannot start one), the payload bits, and the smallest code point that needs this many bytes.
struct LeadByte {
  int length;
  char32_t payload;
  char32_t smallest;
};

constexpr LeadByte read_lead(unsigned char byte) {
  if (byte < 0x80) return {1, byte, 0};
  if (byte < 0xC2) return {0, 0, 0};  // A continuation byte, or the start of an overlong form.
  if (byte < 0xE0) return {2, static_cast<char32_t>(byte & 0x1F), 0x80};
  if (byte < 0xF0) return {3, static_cast<char32_t>(byte & 0x0F), 0x800};
  if (byte < 0xF5) return {4, static_cast<char32_t>(byte & 0x07), 0x10000};
  return {0, 0, 0};
}

constexpr bool is_scalar_value(char32_t c) { return c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF); }

// Parses all of `text` with from_chars; false if it is not exactly one number of type T.
template <typename T>
bool parse_whole(std::string_view text, T& value) {
  const char* end = std::to_address(text.end());
  const auto [stop, error] = std::from_chars(std::to_address(text.begin()), end, value);
  return error == std::errc() && stop == end;
}

template <typename T>
Result<T> parse_in_range(std::string_view text, std::string_view what, T min, T max,
                         std::string_view kind) {
  T value{};
  if (parse_whole(text, value) && value >= min && value <= max) return value;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: '{}' is not {} from {} to {}", what, text, kind, min, max));
}

}  // namespace

std::optional<CodePoint> decode_utf8(std::string_view text) {
  if (text.empty()) return std::nullopt;
  const LeadByte lead = read_lead(static_cast<unsigned char>(text.front()));
  if (lead.length == 0 || text.size() < static_cast<std::size_t>(lead.length)) return std::nullopt;
  char32_t value = lead.payload;
  for (const char c : text.substr(1, static_cast<std::size_t>(lead.length - 1))) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0) != 0x80) return std::nullopt;
    value = (value << 6) | (byte & 0x3F);
  }
  if (value < lead.smallest || !is_scalar_value(value)) return std::nullopt;
  return CodePoint{value, lead.length};
}

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  std::size_t offset = 0;
  while (offset < text.size()) {
    if (static_cast<unsigned char>(text[offset]) < 0x80) {
      ++offset;
      continue;
    }
    const std::optional<CodePoint> point = decode_utf8(text.substr(offset));
    if (!point) return offset;
    offset += static_cast<std::size_t>(point->length);
  }
  return std::nullopt;
}

std::optional<std::string_view> find_wide_encoding(std::string_view text) {
  using namespace std::string_view_literals;
  // The mark of UTF-32 in little-endian order begins with that of UTF-16.
  if (text.starts_with("\xFF\xFE\0\0"sv) || text.starts_with("\0\0\xFE\xFF"sv)) return "UTF-32";
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) return "UTF-16";
  // Without a mark: characters below U+0100 have a zero byte. A text of another kind hardly ever
  // has one, and not only at every second place.
  constexpr std::size_t kExamined = 4096;
  std::array<std::size_t, 2> zeros = {};
  const std::size_t pairs = std::min(text.size(), kExamined) / 2;
  for (std::size_t i = 0; i < 2 * pairs; ++i) zeros[i % 2] += text[i] == '\0' ? 1 : 0;
  if (pairs < 2) return std::nullopt;
  if (zeros[0] == 0 && 2 * zeros[1] > pairs) return "UTF-16LE";
  if (zeros[1] == 0 && 2 * zeros[0] > pairs) return "UTF-16BE";
  return std::nullopt;
}

std::optional<std::string> utf8_mistake(std::string_view text, std::size_t before) {
  if (const auto encoding = find_wide_encoding(text); encoding && before == 0) {
    return fmt::format("it is {}, not UTF-8; convert it with `iconv -f {} -t UTF-8 OLD > NEW`",
                       encoding->substr(0, std::string_view("UTF-16").size()), *encoding);
  }
  const auto invalid = find_invalid_utf8(text);
  if (!invalid) return std::nullopt;
  return fmt::format(
      "byte {} is not UTF-8; convert it, for example with `iconv -f LATIN1 -t UTF-8 "
      "OLD > NEW`",
      before + *invalid);
}

std::string counted(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string_view skip_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  return text.starts_with(kMark) ? text.substr(kMark.size()) : text;
}

void append_utf8(std::string& out, char32_t code_point) {
  if (!is_scalar_value(code_point)) code_point = 0xFFFD;
  const auto tail = [&](int shift) {
    out += static_cast<char>(0x80 | ((code_point >> shift) & 0x3F));
  };
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xC0 | (code_point >> 6));
    tail(0);
  } else if (code_point < 0x10000) {
    out += static_cast<char>(0xE0 | (code_point >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | (code_point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

namespace internal {

Result<std::int64_t> parse_int64(std::string_view text, std::string_view what, std::int64_t min,
                                 std::int64_t max) {
  return parse_in_range(text, what, min, max, "an integer");
}

Result<std::uint64_t> parse_uint64(std::string_view text, std::string_view what, std::uint64_t min,
                                   std::uint64_t max) {
  return parse_in_range(text, what, min, max, "an integer");
}

}  // namespace internal

Result<double> parse_float(std::string_view text, std::string_view what, double min, double max) {
  return parse_in_range(text, what, min, max, "a number");
}

namespace {
bool steers_terminal(char32_t c) {
  if (c < 0x20) return c != '\n' && c != '\t';
  return (c >= 0x7F && c <= 0x9F) || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}
}  // namespace

std::string escape_controls(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto next = decode_utf8(text);
    const std::size_t length = next ? static_cast<std::size_t>(next->length) : 1;
    if (!next) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    } else if (steers_terminal(next->value)) {
      out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(next->value));
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return out;
}

std::string format_bytes(std::int64_t bytes) {
  static constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes > -1024 && bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  // 1023.95 would be shown as 1024.0.
  while (std::abs(value) >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) return "unknown";
  if (seconds < 0) return "-" + format_duration(-seconds);
  if (seconds < 999.5e-9) return fmt::format("{:.0f} ns", seconds * 1e9);
  if (seconds < 999.95e-6) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 999.95e-3) return fmt::format("{:.2f} ms", seconds * 1e3);
  if (seconds < 59.995) return fmt::format("{:.2f} s", seconds);
  if (seconds > 1e15) return "forever";
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  return fmt::format("{}h {:02}m", whole / 3600, whole / 60 % 60);
}

std::string time_left(double seconds) {
  if (!(seconds >= 0.5)) return "under 1 s left";
  // Rounded first: 59.6 s are a minute.
  const double whole = std::round(seconds);
  return whole < 60 ? fmt::format("{:.0f} s left", whole)
                    : fmt::format("{} left", format_duration(whole));
}

std::string format_count(std::int64_t count) {
  static constexpr std::array kUnits = {"K", "M", "B", "T"};
  if (count > -1000 && count < 1000) return fmt::format("{}", count);
  double value = static_cast<double>(count) / 1000;
  std::size_t unit = 0;
  while (std::abs(value) >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  const double size = std::abs(value);
  const int decimals = size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", value, decimals, kUnits[unit]);
}

std::string format_real(double number) {
  std::string text = fmt::format("{}", number);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string shell_quoted(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos) {
    return std::string(text);
  }
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace volta
