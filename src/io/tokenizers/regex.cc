#include "io/tokenizers/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "io/tokenizers/unicode.h"

namespace volta::tokenizers {
namespace {

// Steps of one match, and memory in KiB: far more than sane patterns take, and still soon over.
constexpr std::uint32_t kMatchLimit = 10'000'000;
constexpr std::uint32_t kHeapLimit = 64 << 10;

struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

std::string error_text(int code) {
  std::array<PCRE2_UCHAR, 128> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  std::string text;
  for (const PCRE2_UCHAR c : buffer) {
    if (c == 0) break;
    text += static_cast<char>(c);
  }
  return text;
}

// The characters as PCRE2 takes them: unsigned.
std::vector<PCRE2_UCHAR> code_units(std::string_view text) { return {text.begin(), text.end()}; }

// What Oniguruma and PCRE2 both accept and read differently; empty when there is nothing.
std::string_view foreign_syntax(std::string_view pattern) {
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const std::string_view rest = pattern.substr(i);
    if (rest.starts_with('\\')) {
      for (const std::string_view escape : {"\\h", "\\H", "\\Z", "\\G", "\\K", "\\R", "\\X"}) {
        if (rest.starts_with(escape)) return escape;
      }
      ++i;
    } else if (in_class && rest.starts_with("&&")) {
      return "&&";
    } else if (in_class && rest.starts_with('[') && !rest.starts_with("[:")) {
      return "[ inside [...]";
    } else if (rest.starts_with('[')) {
      if (in_class) i = std::min(pattern.find(":]", i), pattern.size() - 1) + 1;
      in_class = true;
    } else if (rest.starts_with(']')) {
      in_class = false;
    }
  }
  return {};
}

}  // namespace

Result<Regex> Regex::compile(std::string_view pattern, std::string_view what) {
  if (const std::string_view foreign = foreign_syntax(pattern); !foreign.empty()) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("{}: '{}' in the pattern '{}' is not supported", what, foreign, pattern));
  }
  return compile_exact(write_out_classes(pattern), what);
}

Result<Regex> Regex::compile_exact(std::string_view pattern, std::string_view what) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::vector<PCRE2_UCHAR> units = code_units(pattern);
  std::shared_ptr<pcre2_code> code(
      pcre2_compile(units.data(), units.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                    &offset, nullptr),
      pcre2_code_free);
  if (code == nullptr) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: pattern '{}': {} at byte {}", what,
                                                     pattern, error_text(error), offset));
  }
  // Without JIT on this machine the interpreter does the same, slower.
  static_cast<void>(pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE));
  Regex regex;
  regex.code_ = std::move(code);
  return regex;
}

Status Regex::find_all(std::string_view text, std::vector<Span>& matches) const {
  const std::unique_ptr<pcre2_match_data, FreeMatch> data(
      pcre2_match_data_create_from_pattern(code_.get(), nullptr));
  const std::unique_ptr<pcre2_match_context, FreeContext> context(
      pcre2_match_context_create(nullptr));
  if (data == nullptr || context == nullptr) {
    return fail(ErrorCode::kOutOfMemory, "out of memory while matching a pattern");
  }
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_heap_limit(context.get(), kHeapLimit);
  const std::vector<PCRE2_UCHAR> units = code_units(text);
  std::uint32_t options = PCRE2_NO_UTF_CHECK;
  constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);
  std::size_t last_end = kNowhere;
  for (std::size_t at = 0; at <= text.size();) {
    const int count = pcre2_match(code_.get(), units.data(), units.size(), at, options, data.get(),
                                  context.get());
    if (count == PCRE2_ERROR_JIT_STACKLIMIT && (options & PCRE2_NO_JIT) == 0) {
      options |= PCRE2_NO_JIT;  // The interpreter keeps its stack on the heap.
      continue;
    }
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0) {
      return fail(
          ErrorCode::kUnsupported,
          fmt::format("a pattern gave up at byte {} of the text: {}", at, error_text(count)));
    }
    PCRE2_SIZE length = 0;
    pcre2_substring_length_bynumber(data.get(), 0, &length);
    const std::size_t begin = pcre2_get_startchar(data.get());
    const Span match{begin, begin + length};
    const bool empty = length == 0;
    // An empty match right behind another one does not count.
    if (!empty || match.begin != last_end) matches.push_back(match);
    last_end = match.end;
    if (!empty) {
      at = match.end;
    } else if (match.begin < text.size()) {
      at = match.begin + unicode::character_at(text, match.begin).length;
    } else {
      break;
    }
  }
  return {};
}

}  // namespace volta::tokenizers
