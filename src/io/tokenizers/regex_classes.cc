// Writes classes of Unicode out as ranges, where PCRE2 and Oniguruma disagree about them.
#include <fmt/format.h>

#include <map>
#include <optional>
#include <utility>

#include "base/text.h"
#include "io/tokenizers/regex.h"
#include "io/tokenizers/unicode.h"

namespace volta::tokenizers {
namespace {

constexpr char32_t kEnd = 0x110000;

// Oniguruma's \w: nearly what Rust's is, which is_word() follows.
bool is_ruby_word(char32_t c) {
  if (c == 0x200C || c == 0x200D) return false;
  return unicode::is_word(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || (c >= 0xBC && c <= 0xBE);
}

class ClassWriter {
 public:
  ClassWriter() {
    for (char32_t c = 0; c < kEnd; ++c) {
      if (c < 0xD800 || c > 0xDFFF) append_utf8(all_, c);
    }
  }

  // The inside of a [...] that holds what the escape means to Oniguruma; nothing when the escape is
  // none of those that differ.
  std::optional<std::string> members(std::string_view escape) {
    const auto known = known_.find(escape);
    if (known != known_.end()) return known->second;
    std::optional<std::string> made;
    if (escape == "\\s") {
      made = write(escape, [](char32_t c) { return unicode::is_space(c); });
    } else if (escape == "\\w") {
      made = write(escape, is_ruby_word);
    } else if (escape == "\\d" || escape.starts_with("\\p{")) {
      const std::string_view name = escape == "\\d" ? "Nd" : escape.substr(3, escape.size() - 4);
      if (is_category(name)) {
        made =
            write(escape, [&](char32_t c) { return unicode::properties()[c].has_category(name); });
      }
    }
    known_.emplace(escape, made);
    return made;
  }

 private:
  static bool is_category(std::string_view name) {
    return !name.empty() && name.size() <= 2 &&
           std::string_view("LMNPSZ").find(name[0]) != std::string_view::npos &&
           (name.size() == 1 || (name[1] >= 'a' && name[1] <= 'z'));
  }

  template <typename Contains>
  std::optional<std::string> write(std::string_view escape, const Contains& contains) {
    const auto base = Regex::compile_exact(fmt::format("{}+", escape), "class");
    std::vector<Span> runs;
    if (!base || !base->find_all(all_, runs)) return std::nullopt;
    std::vector<bool> theirs(kEnd);
    for (const Span& run : runs) {
      for (std::size_t at = run.begin; at < run.end;) {
        const unicode::Character c = unicode::character_at(all_, at);
        theirs[c.value] = true;
        at += c.length;
      }
    }
    bool too_many = false;
    for (char32_t c = 0; c < kEnd && !too_many; ++c) too_many = theirs[c] && !contains(c);
    std::string out(too_many ? "" : escape);
    for (char32_t begin = 0; begin < kEnd; ++begin) {
      const auto wanted = [&](char32_t c) {
        return c < kEnd && contains(c) && (too_many || !theirs[c]);
      };
      char32_t end = begin;
      while (wanted(end)) ++end;
      if (end == begin) continue;
      out += fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", static_cast<std::uint32_t>(begin),
                         static_cast<std::uint32_t>(end - 1));
      begin = end;
    }
    return out;
  }

  std::string all_;  // All code points.
  std::map<std::string, std::optional<std::string>, std::less<>> known_;
};

// The escape at the front of a pattern that begins with a backslash: \s, \p{L}, \\.
std::string_view escape_at(std::string_view pattern) {
  if (pattern.starts_with("\\p{") || pattern.starts_with("\\P{")) {
    return pattern.substr(0, pattern.find('}') + 1);  // Without }: npos + 1 = 0, nothing.
  }
  return pattern.substr(0, 2);
}

}  // namespace

std::string write_out_classes(std::string_view pattern) {
  std::optional<ClassWriter> writer;
  std::string out;
  bool in_class = false;
  while (!pattern.empty()) {
    const std::string_view escape = pattern.starts_with('\\') ? escape_at(pattern) : "";
    if (escape.size() < 2) {
      if (pattern.front() == '[') in_class = true;
      if (pattern.front() == ']') in_class = false;
      out += pattern.front();
      pattern.remove_prefix(1);
      continue;
    }
    // \S is the complement of \s: only outside of [...] can it be written out.
    std::string positive(escape);
    const bool complement =
        escape[1] == 'S' || escape[1] == 'W' || escape[1] == 'D' || escape[1] == 'P';
    if (complement) positive[1] = static_cast<char>(positive[1] + 32);
    std::optional<std::string> members;
    if (!(complement && in_class) &&
        std::string_view("swdp").find(positive[1]) != std::string_view::npos) {
      if (!writer) writer.emplace();
      members = writer->members(positive);
    }
    if (!members) {
      out += escape;
    } else if (in_class) {
      out += *members;
    } else {
      out += complement ? "[^" : "[";
      out += *members;
      out += ']';
    }
    pattern.remove_prefix(escape.size());
  }
  return out;
}

}  // namespace volta::tokenizers
