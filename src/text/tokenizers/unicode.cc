#include "text/tokenizers/unicode.h"

#include <simdjson.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/text.h"

namespace volta::unicode {

PropertyTable::PropertyTable() {
  constexpr std::size_t kBlock = 128;
  std::map<std::array<std::uint16_t, kBlock>, std::uint16_t> known;
  const std::span<const std::uint32_t> ranges = range_data();
  const auto begin_of = [&](std::size_t range) { return std::size_t{ranges[range] >> 10}; };
  const auto end_of = [&](std::size_t range) {
    return range + 1 < ranges.size() ? begin_of(range + 1) : std::size_t{0x110000};
  };
  std::size_t range = 0;  // The one that the next code point is in.
  for (std::size_t number = 0; number < index_.size(); ++number) {
    const std::size_t first = number * kBlock;
    while (end_of(range) <= first) ++range;
    // Most blocks continue the range that filled the block before them.
    if (first >= begin_of(range) + kBlock && first + kBlock <= end_of(range)) {
      index_[number] = index_[number - 1];
      continue;
    }
    std::array<std::uint16_t, kBlock> block;
    for (std::size_t i = 0; i < kBlock; ++i) {
      while (end_of(range) <= first + i) ++range;
      block[i] = static_cast<std::uint16_t>(ranges[range] & 1023);
    }
    const auto [place, added] =
        known.emplace(block, static_cast<std::uint16_t>(blocks_.size() / kBlock));
    if (added) {
      for (const std::uint16_t bits : block) blocks_.emplace_back(bits);
    }
    index_[number] = place->second;
  }
}

const PropertyTable& properties() {
  static const PropertyTable table;
  return table;
}

bool is_word(char32_t c) {
  const Properties p = properties()[c];
  return p.is_letter() || p.is_mark() || p.is_word_number() || p.is_connector() || c == 0x200C ||
         c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

bool is_numeric(char32_t c) {
  return properties()[c].is_number() || (c >= 0x11DE0 && c <= 0x11DE9) ||
         (c >= 0x16FF4 && c <= 0x16FF6);
}

// The second bytes that may follow a lead byte are from the Unicode Standard, table 3-7.
Utf8Front utf8_front(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, true, false};
  if (lead < 0xC2 || lead > 0xF4) return {1, false, false};
  const std::size_t wanted = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (std::size_t i = 1; i < wanted; ++i) {
    if (i == text.size()) return {i, false, true};
    unsigned char low = 0x80;
    unsigned char high = 0xBF;
    if (i == 1) {
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    }
    if (byte(i) < low || byte(i) > high) return {i, false, false};
  }
  return {wanted, true, false};
}

std::string_view repair_utf8(std::string_view text, std::string& storage) {
  if (simdjson::validate_utf8(text.data(), text.size())) return text;
  storage.clear();
  storage.reserve(text.size());
  while (!text.empty()) {
    const Utf8Front front = utf8_front(text);
    if (front.valid) {
      storage += text.substr(0, front.length);
    } else {
      append_utf8(storage, 0xFFFD);
    }
    text.remove_prefix(front.length);
  }
  return storage;
}

namespace {

struct Marked {
  char32_t value;
  int combining_class;
  std::size_t place;  // In the decomposed text, before reordering.
};

int combining_class(char32_t c) {
  if (c < 0x300 || properties()[c].is_inert()) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

void decompose(char32_t c, bool compatibility, std::vector<Marked>& out) {
  if (c < 0xA0 || properties()[c].is_inert()) {
    out.push_back({c, combining_class(c), out.size()});
    return;
  }
  std::array<utf8proc_int32_t, 32> parts{};  // The longest decomposition has 18.
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                      (compatibility ? UTF8PROC_COMPAT : 0));
  int last_boundary = 0;
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(),
                                             parts.size(), options, &last_boundary);
  if (count <= 0 || count > static_cast<utf8proc_ssize_t>(parts.size())) {
    out.push_back({c, combining_class(c), out.size()});
    return;
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const auto part = static_cast<char32_t>(parts[i]);
    out.push_back({part, combining_class(part), out.size()});
  }
}

// Sorts each run of combining marks by class. The order of equal ones stays.
void reorder(std::vector<Marked>& text) {
  for (auto begin = text.begin(); begin != text.end();) {
    begin = std::find_if(begin, text.end(), [](const Marked& m) { return m.combining_class != 0; });
    const auto end =
        std::find_if(begin, text.end(), [](const Marked& m) { return m.combining_class == 0; });
    const auto less = [](const Marked& a, const Marked& b) {
      return a.combining_class != b.combining_class ? a.combining_class < b.combining_class
                                                    : a.place < b.place;
    };
    if (end - begin > 1) std::sort(begin, end, less);
    begin = end;
  }
}

// The composition of two characters; 0 when there is none.
char32_t compose_pair(char32_t first, char32_t second) {
  std::array<utf8proc_int32_t, 2> pair{static_cast<utf8proc_int32_t>(first),
                                       static_cast<utf8proc_int32_t>(second)};
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  if (utf8proc_normalize_utf32(pair.data(), 2, options) != 1) return 0;
  const auto composed = static_cast<char32_t>(pair[0]);
  return properties()[composed].is_inert() ? 0 : composed;
}

// The Unicode Standard, D117: a character composes with the last starter unless something between
// them has the same or a higher class.
void compose(std::vector<Marked>& text) {
  std::size_t out = 0;
  std::size_t starter = text.size();  // None yet.
  for (const Marked next : text) {
    if (starter < out) {
      const bool adjacent = out == starter + 1;
      const bool blocked = !adjacent && text[out - 1].combining_class >= next.combining_class;
      const char32_t composed =
          blocked || (next.value < 0x300) ? 0 : compose_pair(text[starter].value, next.value);
      if (composed != 0) {
        text[starter].value = composed;
        continue;
      }
    }
    if (next.combining_class == 0) starter = out;
    text[out++] = next;
  }
  text.resize(out);
}

}  // namespace

std::string normalize(std::string_view text, Form form) {
  const bool compatibility = form == Form::kNfkc || form == Form::kNfkd;
  const bool composes = form == Form::kNfc || form == Form::kNfkc;
  // ASCII text is in all normal forms, and text of characters below U+0300 is in NFC.
  const auto plain = [&](char c) {
    return static_cast<unsigned char>(c) < (form == Form::kNfc ? 0xCC : 0x80);
  };
  if (std::all_of(text.begin(), text.end(), plain)) return std::string(text);
  std::vector<Marked> characters;
  characters.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    decompose(c.value, compatibility, characters);
    at += c.length;
  }
  reorder(characters);
  if (composes) compose(characters);
  std::string out;
  out.reserve(text.size());
  for (const Marked& m : characters) append_utf8(out, m.value);
  return out;
}

namespace {

// Pairs that older versions of utf8proc lack: first, last, and distance to the lower case.
struct NewCase {
  char32_t first, last;
  int distance;
};
constexpr std::array<NewCase, 10> kNewCases = {{{0x1C89, 0x1C89, 1},
                                                {0xA7CB, 0xA7CB, 0x264 - 0xA7CB},
                                                {0xA7CC, 0xA7CC, 1},
                                                {0xA7CE, 0xA7CE, 1},
                                                {0xA7D2, 0xA7D2, 1},
                                                {0xA7D4, 0xA7D4, 1},
                                                {0xA7DA, 0xA7DA, 1},
                                                {0xA7DC, 0xA7DC, 0x19B - 0xA7DC},
                                                {0x10D50, 0x10D65, 0x20},
                                                {0x16EA0, 0x16EB8, 0x1B}}};

char32_t lower(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  for (const NewCase& range : kNewCases) {
    if (c >= range.first && c <= range.last) {
      return static_cast<char32_t>(static_cast<int>(c) + range.distance);
    }
  }
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

}  // namespace

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    at += c.length;
    if (c.value == 0x130) {  // The only one with a lower case of two characters: i and a dot above.
      out += "i\u0307";
    } else {
      append_utf8(out, lower(c.value));
    }
  }
  return out;
}

char32_t fold_case(char32_t c) {
  // The dotted capital I and the dotless i are cases of i only in Turkish.
  if (c == 0x130 || c == 0x131) return c;
  return lower(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

}  // namespace volta::unicode
