#include "text/tokenizers/normalizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "text/tokenizers/byte_level.h"
#include "text/tokenizers/limits.h"
#include "text/tokenizers/visit_step.h"

namespace volta::tokenizers {
namespace {

// Replaces each character for which `stays` is false by the output of `write`. The runs of the
// others are copied whole.
template <typename Stays, typename Write>
Result<std::string> map_characters(std::string_view text, WorkBudget& budget, const Stays& stays,
                                   const Write& write) {
  constexpr std::size_t kCharged = 256;  // Bytes that are charged at once.
  std::string out;
  out.reserve(text.size());
  std::size_t copied = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at + std::min(kCharged, text.size() - at);
    VOLTA_TRY(budget.spend(end - at, "normalizer"));
    while (at < end) {
      const unicode::Character c = unicode::character_at(text, at);
      if (!stays(c.value)) {
        out += text.substr(copied, at - copied);
        write(c.value, text.substr(at, c.length), out);
        copied = at + c.length;
      }
      at += c.length;
    }
  }
  out += text.substr(copied);
  return out;
}

template <typename Keep>
Result<std::string> filter(std::string_view text, WorkBudget& budget, const Keep& keep) {
  return map_characters(text, budget, keep, [](char32_t, std::string_view, std::string&) {});
}

// The end of a piece that can be normalized separately. It is followed by a character that neither
// changes nor composes with text before it, such as ASCII and ideographs.
std::size_t end_of_piece(std::string_view text, std::size_t at) {
  constexpr std::size_t kPiece = 1 << 16;
  for (at = std::min(at + kPiece, text.size()); at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80 || (byte >= 0xE5 && byte <= 0xE8)) break;  // U+5000 to U+8FFF.
  }
  return at;
}

Result<std::string> normal_form(std::string_view text, unicode::Form form, WorkBudget& budget) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = end_of_piece(text, at);
    VOLTA_TRY(budget.spend(4 * (end - at), "normalizer of Unicode"));
    out += unicode::normalize(text.substr(at, end - at), form);
    at = end;
  }
  return out;
}

Result<std::string> lowercase(std::string_view text, WorkBudget& budget) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = end_of_piece(text, at);
    VOLTA_TRY(budget.spend(end - at, "normalizer Lowercase"));
    out += unicode::lowercase(text.substr(at, end - at));
    at = end;
  }
  return out;
}

Result<std::string> run(const NormalFormStep& step, const std::string& text, WorkBudget& budget) {
  return normal_form(text, step.form, budget);
}

Result<std::string> run(const LowercaseStep&, const std::string& text, WorkBudget& budget) {
  return lowercase(text, budget);
}

Result<std::string> run(const StripAccentsStep&, const std::string& text, WorkBudget& budget) {
  const unicode::PropertyTable& table = unicode::properties();
  return filter(text, budget, [&](char32_t c) { return !table[c].is_combining_mark(); });
}

Result<std::string> run(const NmtStep&, const std::string& text, WorkBudget& budget) {
  const auto is_control = [](char32_t c) {
    return (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
           c == 0x9F;
  };
  const auto is_space = [](char32_t c) {
    return c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
           (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
           c == 0xFEFF || c == 0xFFFD;
  };
  return map_characters(
      text, budget, [&](char32_t c) { return !is_space(c) && !is_control(c); },
      [&](char32_t c, std::string_view, std::string& out) {
        if (is_space(c)) out += ' ';
      });
}

Result<std::string> run(const StripStep& step, const std::string& text, WorkBudget& budget) {
  VOLTA_TRY(budget.spend(text.size() / 16, "normalizer Strip"));
  std::size_t begin = 0;
  while (step.left && begin < text.size()) {
    const unicode::Character c = unicode::character_at(text, begin);
    if (!unicode::is_space(c.value)) break;
    begin += c.length;
  }
  std::size_t end = text.size();
  while (step.right && end > begin) {
    const std::size_t last = unicode::character_before(text, end);
    if (!unicode::is_space(unicode::character_at(text, last).value)) break;
    end = last;
  }
  return text.substr(begin, end - begin);
}

Result<std::string> run(const PrependStep& step, const std::string& text, WorkBudget& budget) {
  VOLTA_TRY(budget.spend(text.size() / 16, "normalizer Prepend"));
  return text.empty() ? text : step.prefix + text;
}

Result<std::string> run(const ReplaceStep& step, const std::string& text, WorkBudget& budget) {
  return replace(step, text, budget, "normalizer Replace");
}

Result<std::string> run(const ByteLevelNormalizerStep&, const std::string& text,
                        WorkBudget& budget) {
  VOLTA_TRY(budget.spend(text.size() / 2, "normalizer ByteLevel"));
  return to_byte_characters(text);
}

// CJK ideographs as BERT defines them (its list lacks a part of extension E).
bool is_chinese(char32_t c) {
  if (c < 0x3400) return false;
  return (c >= 0x4E00 && c <= 0x9FFF) || c <= 0x4DBF || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) ||
         (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0x2F800 && c <= 0x2FA1F);
}

Result<std::string> run(const BertStep& step, const std::string& input, WorkBudget& budget) {
  std::string text = input;
  const unicode::PropertyTable& table = unicode::properties();
  if (step.clean_text) {
    const auto stays = [&](char32_t c) {
      return !table[c].is_bert_control() && (c == ' ' || !unicode::is_space(c));
    };
    const auto clean = [&](char32_t c, std::string_view, std::string& out) {
      if (!table[c].is_bert_control()) out += ' ';
    };
    VOLTA_TRY(text, map_characters(text, budget, stays, clean));
  }
  if (step.handle_chinese) {
    const auto stays = [](char32_t c) { return !is_chinese(c); };
    const auto surround = [](char32_t, std::string_view bytes, std::string& out) {
      out += ' ';
      out += bytes;
      out += ' ';
    };
    VOLTA_TRY(text, map_characters(text, budget, stays, surround));
  }
  if (step.strip_accents) {
    VOLTA_TRY(text, normal_form(text, unicode::Form::kNfd, budget));
    VOLTA_TRY(text, filter(text, budget, [&](char32_t c) { return !table[c].is_bert_accent(); }));
  }
  if (step.lowercase) {
    VOLTA_TRY(text, lowercase(text, budget));
  }
  return text;
}

Result<BertStep> parse_bert(const JsonRef& json) {
  BertStep step;
  VOLTA_TRY(step.clean_text, json.get_bool_or("clean_text", true));
  VOLTA_TRY(step.handle_chinese, json.get_bool_or("handle_chinese_chars", true));
  VOLTA_TRY(step.lowercase, json.get_bool_or("lowercase", true));
  VOLTA_TRY(step.strip_accents, json.get_bool_or("strip_accents", step.lowercase));
  return step;
}

}  // namespace

Result<ReplaceStep> parse_replace(const JsonRef& json) {
  ReplaceStep step;
  VOLTA_TRY(step.content, json.get_string("content"));
  VOLTA_TRY(check_step_text(step.content, json, "content"));
  VOLTA_TRY(const JsonRef pattern, json.member("pattern"));
  VOLTA_TRY(const auto string, pattern.optional_member("String"));
  if (string) {
    VOLTA_TRY(std::string text, string->as_string());
    VOLTA_TRY(check_step_text(text, json, "pattern"));
    step.pattern = std::move(text);
  } else {
    VOLTA_TRY(const std::string text, pattern.get_string("Regex"));
    VOLTA_TRY(step.pattern, Regex::compile(text, pattern.path()));
  }
  return step;
}

namespace {

// The number of bytes by which a text grows, or 0, when `content` replaces each match.
std::size_t growth(std::string_view content, const std::vector<Span>& matches) {
  std::size_t before = 0;
  for (const Span& match : matches) before += match.end - match.begin;
  const std::size_t after = matches.size() * content.size();
  return after > before ? after - before : 0;
}

}  // namespace

Result<std::string> replace(const ReplaceStep& step, std::string text, WorkBudget& budget,
                            std::string_view component) {
  VOLTA_TRY(budget.spend(text.size() / 8, component));
  std::vector<Span> matches;
  if (const auto* string = std::get_if<std::string>(&step.pattern)) {
    if (string->empty()) return text;
    for (std::size_t at = text.find(*string); at != std::string::npos;
         at = text.find(*string, at + string->size())) {
      VOLTA_TRY(budget.spend(1, component));
      matches.push_back({at, at + string->size()});
    }
  } else if (const auto* regex = std::get_if<Regex>(&step.pattern)) {
    VOLTA_TRY(regex->find_all(text, matches, budget));
  }
  if (matches.empty()) return text;
  VOLTA_TRY(budget.grow(growth(step.content, matches), component));
  const std::string_view view = text;
  std::string out;
  std::size_t end = 0;
  for (const Span& match : matches) {
    out += view.substr(end, match.begin - end);
    out += step.content;
    end = match.end;
  }
  out += view.substr(end);
  return out;
}

Result<Normalizer> Normalizer::parse(const JsonRef& json) {
  Normalizer normalizer;
  VOLTA_TRY(normalizer.parse_into(json, 0));
  return normalizer;
}

namespace {

// The step in the form for a part of a text; nullopt if it does nothing to that part.
std::optional<NormalizerStep> step_for(const NormalizerStep& step, const PartOfText& part) {
  if (std::holds_alternative<PrependStep>(step) && !part.begins) return std::nullopt;
  if (const auto* strip = std::get_if<StripStep>(&step)) {
    return StripStep{.left = strip->left && part.begins, .right = strip->right && part.ends};
  }
  return step;
}

}  // namespace

Result<std::string> Normalizer::normalize(std::string_view text, WorkBudget& budget,
                                          const PartOfText& part) const {
  const bool whole = part.begins && part.ends;
  std::string out(text);
  for (const NormalizerStep& step : steps_) {
    const std::size_t before = out.size();
    const auto own = whole ? std::nullopt : step_for(step, part);
    if (!whole && !own) continue;
    VOLTA_TRY(out,
              visit_step([&](const auto& s) { return run(s, out, budget); }, own ? *own : step));
    // Replace has counted its output already.
    if (out.size() > before && !std::holds_alternative<ReplaceStep>(step)) {
      VOLTA_TRY(budget.grow(out.size() - before, "normalizer"));
    }
  }
  return out;
}

Status Normalizer::parse_into(const JsonRef& json, int depth) {
  using unicode::Form;
  VOLTA_TRY(const std::string type, json.get_string("type"));
  if (type == "Sequence") {
    if (depth == kMaxDepth) {
      return fail(ErrorCode::kInvalidFile, fmt::format("{}: nested too deeply", json.path()));
    }
    VOLTA_TRY(const JsonRef list, json.member("normalizers"));
    VOLTA_TRY(const auto parts, list.elements());
    for (const JsonRef& part : parts) VOLTA_TRY(parse_into(part, depth + 1));
    return {};
  }
  const auto simple = [&]() -> std::optional<NormalizerStep> {
    if (type == "NFC") return NormalFormStep{Form::kNfc};
    if (type == "NFD") return NormalFormStep{Form::kNfd};
    if (type == "NFKC") return NormalFormStep{Form::kNfkc};
    if (type == "NFKD") return NormalFormStep{Form::kNfkd};
    if (type == "Lowercase") return LowercaseStep{};
    if (type == "StripAccents") return StripAccentsStep{};
    if (type == "Nmt") return NmtStep{};
    if (type == "ByteLevel") return ByteLevelNormalizerStep{};
    return std::nullopt;
  }();
  if (simple) {
    steps_.push_back(*simple);
  } else if (type == "Strip") {
    StripStep step;
    VOLTA_TRY(step.left, json.get_bool_or("strip_left", true));
    VOLTA_TRY(step.right, json.get_bool_or("strip_right", true));
    steps_.emplace_back(step);
  } else if (type == "Prepend") {
    VOLTA_TRY(std::string prefix, json.get_string("prepend"));
    VOLTA_TRY(check_step_text(prefix, json, "prepend"));
    steps_.emplace_back(PrependStep{std::move(prefix)});
  } else if (type == "Replace") {
    VOLTA_TRY(ReplaceStep step, parse_replace(json));
    steps_.emplace_back(std::move(step));
  } else if (type == "BertNormalizer") {
    VOLTA_TRY(const BertStep step, parse_bert(json));
    steps_.emplace_back(step);
  } else {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: normalizer {} is not supported", json.path(), type));
  }
  return check_step_count(steps_, json);
}

}  // namespace volta::tokenizers
