// Patterns of real tokenizers, and patterns and texts from a grammar: for tests and the fuzzer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace volta::test {

struct NamedPattern {
  std::string_view name;
  std::string_view pattern;
};

/// What tokenizers in use split and clean text with, as their tokenizer.json writes it (of one list
/// of letters only the beginning).
inline constexpr auto kRealPatterns = std::to_array<NamedPattern>({
    {"GPT-2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {"Llama 3, cl100k",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"Qwen 2",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"GLM-4",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s)"},
    {"cl100k, possessive",
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|)"
     R"(\s*[\r\n]|\s+(?!\S)|\s+)"},
    {"o200k, Llama 4, GPT-OSS",
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"Mistral Tekken",
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
     R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"DeepSeek V3: numbers", R"(\p{N}{1,3})"},
    {"DeepSeek V3: CJK", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"},
    {"DeepSeek V3: words",
     R"PAT([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)PAT"
     R"PAT( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)PAT"},
    {"DeepSeek LLM: line ends", "[\r\n]"},
    {"DeepSeek LLM: letters",
     "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-"
     "\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1]+"},
    {"DeepSeek LLM: punctuation",
     "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"},
    {"DeepSeek LLM: spaces", R"(\s+$)"},
    {"DeepSeek LLM: CJK", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"},
    {"Falcon", "[0-9][0-9][0-9]"},
    {"BLOOM", " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"},
    {"Poro, Viking", " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"},
    {"Kimi K2", R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
                R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|)"
                R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"CLIP: spaces", R"(\s+)"},
    {"CLIP", R"('s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+)"},
    {"digits", R"(\d)"},
    {"digits in threes", R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$)))"},
    {"XLM-R, T5, ALBERT: spaces", R"( {2,})"},
    {"letters with marks", R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
                           R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
});

/// The pattern with this name; nothing when there is none.
inline std::string_view real_pattern(std::string_view name) {
  for (const NamedPattern& p : kRealPatterns) {
    if (p.name == name) return p.pattern;
  }
  return {};
}

/// Whether these may be all matches of a pattern in a text of valid UTF-8: whole characters, from
/// left to right.
template <typename Spans>
bool are_matches(std::string_view text, const Spans& matches) {
  std::size_t end = 0;
  for (const auto& match : matches) {
    const bool in_order = match.begin >= end && match.begin <= match.end;
    if (!in_order || match.end > text.size()) return false;
    for (const std::size_t at : {match.begin, match.end}) {
      if (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) return false;
    }
    end = match.end;
  }
  return true;
}

/// Writes patterns and texts. Every choice is made by a byte, so that a fuzzer can make them; when
/// there are no more bytes, the simplest choice is made.
class RegexGrammar {
 public:
  /// `hostile`: with syntax that is refused, half-understood or broken.
  RegexGrammar(std::span<const std::uint8_t> bytes, bool hostile)
      : bytes_(bytes), hostile_(hostile) {}

  std::string pattern() {
    std::string out;
    alternatives(out, 3);
    return out;
  }
  std::string text() {
    std::string out;
    while (!bytes_.empty() && out.size() < 200) out += pick(kTextParts);
    return out;
  }

 private:
  static constexpr auto kTextParts = std::to_array<std::string_view>(
      {"a",      "b",          "a",      "ab",     "B",      "z",      "Z",      "s",
       "S",      "k",          "1",      "23",     " ",      "  ",     "\n",     "\r\n",
       "\t",     "'",          "-",      "_",      ".",      "!",      "]",      "\\",
       "\x1c",   "K",          "\u00e9", "\u00c9", "\u017f", "\u212a", "\u4f60", "\u597d",
       "\u3042", "\U0001f600", "\u00a0", "\u3000"});
  static constexpr auto kCharacters = std::to_array<std::string_view>(
      {"a",   "b",    "ab",  "s",      "k",         "Z",         "1",
       " ",   "'",    "-",   "\u00e9", "\u017f",    "\u4f60",    "\U0001f600",
       "]",   "}",    "{",   "\\n",    "\\r",       "\\t",       "\\-",
       "\\.", "\\\\", "\\[", "\\x41",  "\\x{4f60}", "\\x{1F600}"});
  static constexpr auto kClasses = std::to_array<std::string_view>(
      {".", "\\s", "\\S", "\\d", "\\D", "\\p{L}", "\\P{L}", "\\p{Lu}", "\\p{Ll}", "\\p{N}",
       "\\p{P}", "\\p{Han}", "\\w", "\\W"});
  static constexpr auto kInClass =
      std::to_array<std::string_view>({"a",      "b",       "s",      "-",      "a-z",
                                       "0-9",    "A-Y",     "\u00e9", "\u4f60", "\u3040-\u30ff",
                                       "\\s",    "\\S",     "\\d",    "\\p{L}", "\\p{N}",
                                       "\\P{L}", "\\p{Lu}", "\\n",    "\\]",    "\\-",
                                       "'"});
  static constexpr auto kHostile = std::to_array<std::string_view>({"\\K",
                                                                    "\\c\\",
                                                                    "\\c",
                                                                    "\\C",
                                                                    "\\G",
                                                                    "\\Q",
                                                                    "\\E",
                                                                    "\\R",
                                                                    "\\X",
                                                                    "\\h",
                                                                    "\\N",
                                                                    "\\1",
                                                                    "\\0",
                                                                    "\\k<a>",
                                                                    "\\g<0>",
                                                                    "\\Z",
                                                                    "\\p",
                                                                    "\\p{",
                                                                    "\\p{Xx}",
                                                                    "\\x",
                                                                    "\\x{",
                                                                    "\\x{D800}",
                                                                    "\\x{110000}",
                                                                    "\\xff",
                                                                    "\\u00",
                                                                    "(?R)",
                                                                    "(?1)",
                                                                    "(?<a>a)",
                                                                    "(?P<a>a)",
                                                                    "(?(1)a|b)",
                                                                    "(*FAIL)",
                                                                    "(*UTF)",
                                                                    "(?C1)",
                                                                    "(?#a",
                                                                    "(?|a|b)",
                                                                    "(?x)",
                                                                    "(?",
                                                                    "(",
                                                                    ")",
                                                                    "[",
                                                                    "[^",
                                                                    "[a-",
                                                                    "[[:alpha:]]",
                                                                    "[a&&b]",
                                                                    "[a[b]]",
                                                                    "[z-a]",
                                                                    "*",
                                                                    "a**",
                                                                    "a+++",
                                                                    "{2}",
                                                                    "a{2}{3}",
                                                                    "a{,}",
                                                                    "a{3,1}",
                                                                    "a{99999}",
                                                                    "(?:a{99}){99}",
                                                                    "\\",
                                                                    "\xff",
                                                                    "\xf4\x90\x80\x80",
                                                                    "a{1,3}+",
                                                                    "(?<=a*)",
                                                                    "(?<!a|bc)",
                                                                    "(?i)a|B"});
  static constexpr auto kCounts =
      std::to_array<std::string_view>({"*", "+", "?", "{2}", "{1,2}", "{2,}", "{0,3}", "*?", "+?",
                                       "??", "{1,3}?", "*+", "++", "?+"});
  static constexpr auto kGroups =
      std::to_array<std::string_view>({"(?:", "(", "(?i:", "(?=", "(?!", "(?>"});
  static constexpr auto kBehind = std::to_array<std::string_view>(
      {"(?<=a)", "(?<!a)", "(?<=\\s)", "(?<!\\p{L})", "(?<=ab)", "(?<=\u4f60)", "(?<![a-z]{2})"});
  static constexpr auto kAssertions =
      std::to_array<std::string_view>({"^", "$", "\\A", "\\z", "\\b", "\\B"});

  std::size_t choose(std::size_t count) {
    if (bytes_.empty()) return 0;
    const std::uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte % count;
  }
  template <typename List>
  std::string_view pick(const List& list) {
    return list[choose(list.size())];
  }

  void alternatives(std::string& out, int depth) {
    const std::size_t count = choose(4);
    sequence(out, depth);
    for (std::size_t i = 1; i < count; ++i) {
      out += '|';
      sequence(out, depth);
    }
  }
  void sequence(std::string& out, int depth) {
    const std::size_t count = 1 + choose(4);
    for (std::size_t i = 0; i < count; ++i) part(out, depth);
  }
  void part(std::string& out, int depth) {
    if (hostile_ && choose(8) == 7) {
      out += pick(kHostile);
      return;
    }
    const std::size_t kind = choose(depth > 0 ? 10 : 7);
    if (kind == 5) {
      out += pick(kAssertions);
      return;
    }
    if (kind == 6) {
      out += pick(kBehind);
      return;
    }
    bool may_repeat = true;
    if (kind < 3) {
      out += pick(kCharacters);
    } else if (kind == 3) {
      out += pick(kClasses);
    } else if (kind == 4) {
      bracket(out);
    } else {
      const std::string_view open = pick(kGroups);
      may_repeat = open != "(?=" && open != "(?!";
      out += open;
      alternatives(out, depth - 1);
      out += ')';
    }
    if (may_repeat && choose(2) == 1) out += pick(kCounts);
  }
  void bracket(std::string& out) {
    out += choose(3) == 2 ? "[^_" : "[_";
    const std::size_t count = 1 + choose(3);
    for (std::size_t i = 0; i < count; ++i) {
      // A minus between two parts means something else to everyone.
      const std::string_view item = pick(kInClass);
      if (item != "-" || i + 1 == count) out += item;
    }
    out += ']';
  }

  std::span<const std::uint8_t> bytes_;
  bool hostile_;
};

}  // namespace volta::test
