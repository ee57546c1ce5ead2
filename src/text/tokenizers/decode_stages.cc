#include "text/tokenizers/decode_stages.h"

#include <array>
#include <optional>
#include <utility>

#include "base/text.h"
#include "text/tokenizers/byte_level.h"
#include "text/tokenizers/unicode.h"
#include "text/tokenizers/visit_step.h"

namespace volta::tokenizers {
namespace {

class GatherStage final : public DecodeStage {
 public:
  void push(Chunk chunk, std::vector<Chunk>& out) override {
    if (chunk.begins) finish(out);
    if (!token_) token_.emplace();
    *token_ += chunk.text;
  }
  void finish(std::vector<Chunk>& out) override {
    if (token_) out.push_back({*std::exchange(token_, std::nullopt), true});
  }

 private:
  std::optional<std::string> token_;
};

class ByteLevelStage final : public DecodeStage {
 public:
  void push(Chunk chunk, std::vector<Chunk>& out) override {
    // A token with a character that represents no byte stays unchanged.
    auto bytes = from_byte_characters(chunk.text);
    pending_ += bytes ? *bytes : chunk.text;
    emit(out, false);
  }
  void finish(std::vector<Chunk>& out) override { emit(out, true); }

 private:
  void emit(std::vector<Chunk>& out, bool all) {
    std::string text;
    std::string_view rest = pending_;
    while (!rest.empty()) {
      const unicode::Utf8Front front = unicode::utf8_front(rest);
      if (front.unfinished && !all) break;
      if (front.valid) {
        text += rest.substr(0, front.length);
      } else {
        append_utf8(text, 0xFFFD);
      }
      rest.remove_prefix(front.length);
    }
    pending_.erase(0, pending_.size() - rest.size());
    out.push_back({std::move(text), std::exchange(first_, false)});
  }
  std::string pending_;
  bool first_ = true;
};

// The byte of a token such as <0x41>.
std::optional<char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const char lower = static_cast<char>(c | 0x20);
    if (c >= '0' && c <= '9') {
      value = value * 16 + (c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      value = value * 16 + (lower - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  return static_cast<char>(value);
}

class ByteFallbackStage final : public DecodeStage {
 public:
  void push(Chunk chunk, std::vector<Chunk>& out) override {
    if (const auto byte = byte_of(chunk.text)) {
      bytes_ += *byte;
      return;
    }
    finish(out);
    out.push_back(std::move(chunk));
  }
  void finish(std::vector<Chunk>& out) override {
    if (bytes_.empty()) return;
    if (!find_invalid_utf8(bytes_)) {
      out.push_back({bytes_, true});
    } else {
      for (std::size_t i = 0; i < bytes_.size(); ++i) out.push_back({"\uFFFD", true});
    }
    bytes_.clear();
  }

 private:
  std::string bytes_;
};

class FuseStage final : public DecodeStage {
 public:
  void push(Chunk chunk, std::vector<Chunk>& out) override {
    out.push_back({std::move(chunk.text), std::exchange(first_, false)});
  }

 private:
  bool first_ = true;
};

class StripStage final : public DecodeStage {
 public:
  explicit StripStage(const StripDecode& step) : step_(step) {}
  void push(Chunk chunk, std::vector<Chunk>& out) override {
    if (chunk.begins) {
      held_ = 0;  // The held copies ended the token before, so they are cut.
      left_ = step_.start;
    }
    std::string_view text = chunk.text;
    while (left_ > 0 && text.starts_with(step_.content)) {
      text.remove_prefix(step_.content.size());
      --left_;
    }
    if (!text.empty()) left_ = 0;
    std::string whole = repeated(held_);
    whole += text;
    held_ = 0;
    while (held_ < step_.stop && whole.ends_with(step_.content)) {
      whole.erase(whole.size() - step_.content.size());
      ++held_;
    }
    out.push_back({std::move(whole), chunk.begins});
  }

 private:
  std::string repeated(std::size_t times) const {
    std::string text;
    for (; times > 0; --times) text += step_.content;
    return text;
  }
  const StripDecode& step_;
  std::size_t left_ = 0;  // How many may still be cut at the front of the token.
  std::size_t held_ = 0;  // How many at the end of the token are held back.
};

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty() || text.find(from) == std::string::npos) return;
  std::string out;
  std::size_t end = 0;
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, end)) {
    out.append(text, end, at - end);
    out += to;
    end = at + from.size();
  }
  out.append(text, end);
  text = std::move(out);
}

void clean_up(std::string& text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kRules = {{
      {" .", "."},
      {" ?", "?"},
      {" !", "!"},
      {" ,", ","},
      {" ' ", "'"},
      {" n't", "n't"},
      {" 'm", "'m"},
      {" do not", " don't"},
      {" 's", "'s"},
      {" 've", "'ve"},
      {" 're", "'re"},
  }};
  for (const auto& [from, to] : kRules) replace_all(text, from, to);
}

class WordPieceStage final : public DecodeStage {
 public:
  explicit WordPieceStage(const WordPieceDecode& step) : step_(step) {}
  void push(Chunk chunk, std::vector<Chunk>& out) override {
    if (!std::exchange(first_, false)) {
      if (chunk.text.starts_with(step_.prefix)) {
        chunk.text.erase(0, step_.prefix.size());
      } else {
        chunk.text.insert(0, " ");
      }
    }
    if (step_.cleanup) clean_up(chunk.text);
    out.push_back(std::move(chunk));
  }

 private:
  const WordPieceDecode& step_;
  bool first_ = true;
};

class MetaspaceStage final : public DecodeStage {
 public:
  explicit MetaspaceStage(const MetaspaceDecode& step) : step_(step) {}
  void push(Chunk chunk, std::vector<Chunk>& out) override {
    const bool drop = std::exchange(first_, false) && step_.drops_first;
    replace_all(chunk.text, step_.replacement, drop ? "" : " ");
    out.push_back(std::move(chunk));
  }

 private:
  const MetaspaceDecode& step_;
  bool first_ = true;
};

class BpeStage final : public DecodeStage {
 public:
  explicit BpeStage(const BpeDecode& step) : step_(step) {}
  void push(Chunk chunk, std::vector<Chunk>& out) override {
    emit(" ", out);
    held_ = std::move(chunk);
  }
  void finish(std::vector<Chunk>& out) override { emit("", out); }

 private:
  void emit(std::string_view replacement, std::vector<Chunk>& out) {
    if (!held_) return;
    replace_all(held_->text, step_.suffix, replacement);
    out.push_back(*std::exchange(held_, std::nullopt));
  }
  const BpeDecode& step_;
  std::optional<Chunk> held_;
};

class SpacesStage final : public DecodeStage {
 public:
  void push(Chunk chunk, std::vector<Chunk>& out) override {
    if (!std::exchange(first_, false)) chunk.text.insert(0, " ");
    out.push_back(std::move(chunk));
  }

 private:
  bool first_ = true;
};

class ReplaceStage final : public DecodeStage {
 public:
  explicit ReplaceStage(const ReplaceStep& step) : step_(step), budget_(text_work_limits(0)) {}
  void push(Chunk chunk, std::vector<Chunk>& out) override {
    // A token stays unchanged if the pattern fails on it or the budget for all tokens is spent.
    budget_.add_input(chunk.text.size());
    auto replaced = replace(step_, chunk.text, budget_, "decoder Replace");
    if (replaced) chunk.text = *std::move(replaced);
    out.push_back(std::move(chunk));
  }

 private:
  const ReplaceStep& step_;
  WorkBudget budget_;
};

struct Make {
  using Stage = std::unique_ptr<DecodeStage>;
  Stage operator()(const ByteLevelDecode&) const { return std::make_unique<ByteLevelStage>(); }
  Stage operator()(const ByteFallbackDecode&) const {
    return std::make_unique<ByteFallbackStage>();
  }
  Stage operator()(const FuseDecode&) const { return std::make_unique<FuseStage>(); }
  Stage operator()(const StripDecode& step) const { return std::make_unique<StripStage>(step); }
  Stage operator()(const WordPieceDecode& step) const {
    return std::make_unique<WordPieceStage>(step);
  }
  Stage operator()(const MetaspaceDecode& step) const {
    return std::make_unique<MetaspaceStage>(step);
  }
  Stage operator()(const BpeDecode& step) const { return std::make_unique<BpeStage>(step); }
  Stage operator()(const SpacesDecode&) const { return std::make_unique<SpacesStage>(); }
  Stage operator()(const ReplaceStep& step) const { return std::make_unique<ReplaceStage>(step); }
};

}  // namespace

std::unique_ptr<DecodeStage> make_stage(const DecodeStep& step) { return visit_step(Make{}, step); }
std::unique_ptr<DecodeStage> make_gather_stage() { return std::make_unique<GatherStage>(); }

}  // namespace volta::tokenizers
