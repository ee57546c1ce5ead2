#include "train/chat_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <optional>
#include <utility>

#include "base/arithmetic.h"
#include "base/json.h"
#include "base/text.h"
#include "text/chat_prompt.h"
#include "text/quoted_text.h"

namespace volta {
namespace {

constexpr std::size_t kMaxLineBytes = std::size_t{64} << 20;
// Rows that are filled at the same time. More of them waste less room, and take longer.
constexpr std::size_t kOpenRows = 64;

using Ids = std::vector<std::int32_t>;

// The day that templates see: 1 January 2025, a Wednesday.
std::tm fixed_day() {
  std::tm day{};
  day.tm_year = 125;
  day.tm_mday = 1;
  day.tm_wday = 3;
  day.tm_isdst = -1;
  return day;
}

std::size_t common_prefix(const Ids& a, const Ids& b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

// Adds the place to an error. A rejection by the template or the tokenizer is a mistake in the
// file.
std::unexpected<Error> in_line(const Error& error, const std::string& place) {
  const bool callers = error.code() == ErrorCode::kInvalidArgument;
  return fail(callers ? ErrorCode::kInvalidFile : error.code(),
              error.message().starts_with(place) ? std::string(error.message())
                                                 : fmt::format("{}: {}", place, error.message()));
}

std::unexpected<Error> mistake(std::string_view what) {
  return fail(ErrorCode::kInvalidFile, std::string(what));
}

// Makes the examples of one conversation.
class Conversations {
 public:
  explicit Conversations(const ChatRenderer& renderer) : renderer_(renderer) {
    options_.now = fixed_day();
    options_.interrupted = renderer.interrupted;
    if (renderer.chat_template == nullptr) return;
    const Ids end = end_of_turn(*renderer.chat_template, options_, *renderer.tokenizer);
    if (!end.empty()) end_of_turn_ = end.front();
  }

  // Adds the examples of `messages`. Answers before the message `first` are not learned.
  Status add(const JsonValue::Array& messages, std::size_t first, const JsonValue* tools,
             std::vector<ChatExample>& examples);
  // Adds a prompt and its completion as they are, for models without a template.
  Status add_plain(const std::string& prompt, const std::string& completion,
                   std::vector<ChatExample>& examples) const;

 private:
  struct Rendered {
    std::string text;
    Ids ids;
  };
  Result<Rendered> render(const JsonValue::Array& messages, std::size_t count,
                          bool with_generation_prompt);
  // What became of an answer in the rendered conversation.
  enum class Mark {
    kMarked,
    kChanged,    // The template renders it differently.
    kBehindRow,  // Its prompt is longer than a row.
  };
  Result<Mark> mark(const JsonValue::Array& messages, std::size_t answer, const Rendered& all,
                    bool last, ChatExample& example);
  Result<std::size_t> find_answer(const JsonValue::Array& messages, std::size_t answer,
                                  const Rendered& prompt, const Rendered& all);
  Result<std::vector<std::size_t>> mark_each(const JsonValue::Array& messages,
                                             std::span<const std::size_t> answers,
                                             const Rendered& all, ChatExample& example);
  Result<std::vector<std::size_t>> mark_latest(const JsonValue::Array& messages,
                                               std::span<const std::size_t> answers,
                                               const Rendered& all, ChatExample& example);

  const ChatRenderer& renderer_;
  ChatOptions options_;
  std::optional<std::int32_t> end_of_turn_;
};

// The first `count` messages.
Result<Conversations::Rendered> Conversations::render(const JsonValue::Array& messages,
                                                      std::size_t count,
                                                      bool with_generation_prompt) {
  options_.add_generation_prompt = with_generation_prompt;
  JsonValue::Array part(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(count));
  VOLTA_TRY(QuotedText text,
            renderer_.chat_template->render_quoted(JsonValue(std::move(part)), options_));
  Rendered rendered;
  VOLTA_TRY(rendered.ids, renderer_.tokenizer->encode_quoted(text));
  rendered.text = std::move(text.text);
  return rendered;
}

// The token at which the answer begins: the first one behind the prompt that asks for it. Where the
// answer does not begin as that prompt ends (templates can begin an answer with thoughts), it is
// the first token that differs, and it must lie behind the messages before the answer.
Result<std::size_t> Conversations::find_answer(const JsonValue::Array& messages, std::size_t answer,
                                               const Rendered& prompt, const Rendered& all) {
  const std::size_t begin = common_prefix(prompt.ids, all.ids);
  if (all.text.starts_with(prompt.text)) return begin;
  VOLTA_TRY(const Rendered before, render(messages, answer, false));
  if (all.text.starts_with(before.text)) return begin;
  return mistake(
      fmt::format("the chat template changes what is before message {} when that is "
                  "added, so the answer cannot be told from its prompt",
                  answer + 1));
}

// Marks the tokens of one answer in the example of the conversation `all`, whose last message it
// may be.
Result<Conversations::Mark> Conversations::mark(const JsonValue::Array& messages,
                                                std::size_t answer, const Rendered& all, bool last,
                                                ChatExample& example) {
  if (answer == 0) return mistake("message 1 is an answer, but nothing asks for it");
  VOLTA_TRY(const Rendered prompt, render(messages, answer, true));
  if (std::ssize(prompt.ids) > renderer_.row_tokens) return Mark::kBehindRow;
  std::size_t end = all.ids.size();
  if (!last) {
    VOLTA_TRY(const Rendered until, render(messages, answer + 1, false));
    if (!all.text.starts_with(until.text)) return Mark::kChanged;
    end = common_prefix(until.ids, all.ids);
  }
  VOLTA_TRY(const std::size_t begin, find_answer(messages, answer, prompt, all));
  // What the template writes behind the end of the turn is not part of the answer.
  std::size_t turn = end;
  while (turn > begin && all.ids[turn - 1] != end_of_turn_) --turn;
  if (turn > begin) end = turn;
  if (begin >= end) {
    return mistake(
        fmt::format("the chat template shows nothing of message {}, an answer", answer + 1));
  }
  std::fill(example.is_answer.begin() + static_cast<std::ptrdiff_t>(begin),
            example.is_answer.begin() + static_cast<std::ptrdiff_t>(end), true);
  return Mark::kMarked;
}

// Marks the answers, up to the first one that is behind the end of a row. Returns those that the
// template renders differently here, because more messages follow.
Result<std::vector<std::size_t>> Conversations::mark_each(const JsonValue::Array& messages,
                                                          std::span<const std::size_t> answers,
                                                          const Rendered& all,
                                                          ChatExample& example) {
  std::vector<std::size_t> changed;
  for (const std::size_t answer : answers) {
    VOLTA_TRY(const Mark found, mark(messages, answer, all, answer == answers.back(), example));
    if (found == Mark::kBehindRow) break;
    if (found == Mark::kChanged) changed.push_back(answer);
  }
  return changed;
}

// Takes answers that longer conversations render differently. Marks the last one, then those before
// it until one is rendered differently here, too. Returns the answers that are left.
Result<std::vector<std::size_t>> Conversations::mark_latest(const JsonValue::Array& messages,
                                                            std::span<const std::size_t> answers,
                                                            const Rendered& all,
                                                            ChatExample& example) {
  std::size_t left = answers.size();
  for (; left > 0; --left) {
    const bool last = left == answers.size();
    VOLTA_TRY(const Mark found, mark(messages, answers[left - 1], all, last, example));
    if (found != Mark::kMarked && !last) break;
  }
  return std::vector(answers.begin(), answers.begin() + static_cast<std::ptrdiff_t>(left));
}

Status Conversations::add(const JsonValue::Array& messages, std::size_t first,
                          const JsonValue* tools, std::vector<ChatExample>& examples) {
  std::vector<std::size_t> answers;
  for (std::size_t i = first; i < messages.size(); ++i) {
    if (message_role(messages[i]) == "assistant") answers.push_back(i);
  }
  if (answers.empty()) {
    return mistake("no answer to learn: a conversation needs a message of the assistant");
  }
  options_.tools = tools;
  bool whole = true;
  while (!answers.empty()) {  // Once, unless the template changes answers that are not the last.
    VOLTA_TRY(Rendered all, render(messages, answers.back() + 1, false));
    ChatExample example{.ids = {}, .is_answer = std::vector<bool>(all.ids.size())};
    VOLTA_TRY(answers, whole ? mark_each(messages, answers, all, example)
                             : mark_latest(messages, answers, all, example));
    example.ids = std::move(all.ids);
    examples.push_back(std::move(example));
    whole = false;
  }
  return {};
}

Status Conversations::add_plain(const std::string& prompt, const std::string& completion,
                                std::vector<ChatExample>& examples) const {
  VOLTA_TRY(const Ids before, renderer_.tokenizer->encode_prompt(prompt));
  VOLTA_TRY(Ids all, renderer_.tokenizer->encode_prompt(prompt + completion));
  const std::size_t begin = common_prefix(before, all);
  const auto end = renderer_.tokenizer->end_token();
  if (end && (all.empty() || all.back() != *end)) all.push_back(*end);
  ChatExample example{.ids = std::move(all), .is_answer = {}};
  example.is_answer.resize(example.ids.size(), true);
  std::fill_n(example.is_answer.begin(), static_cast<std::ptrdiff_t>(begin), false);
  examples.push_back(std::move(example));
  return {};
}

const JsonValue::Array* array_of(const JsonValue* member) {
  return member == nullptr ? nullptr : member->if_array();
}

// A "prompt" and a "completion", which are both texts or both lists of messages.
Status add_completion(const JsonValue& line, const ChatRenderer& renderer,
                      Conversations& conversations, const JsonValue* tools,
                      const std::string& place, std::vector<ChatExample>& examples) {
  const JsonValue* prompt = line.find("prompt");
  const JsonValue* completion = line.find("completion");
  const std::string* question = prompt == nullptr ? nullptr : prompt->if_string();
  const std::string* answer = completion == nullptr ? nullptr : completion->if_string();
  if (question != nullptr && answer != nullptr) {
    if (answer->empty()) return mistake("the completion is empty; leave the line out");
    if (renderer.chat_template == nullptr) {
      return conversations.add_plain(*question, *answer, examples);
    }
    const JsonValue::Array messages = {make_message("user", *question),
                                       make_message("assistant", *answer)};
    return conversations.add(messages, 1, tools, examples);
  }
  const JsonValue::Array* before = array_of(prompt);
  const JsonValue::Array* after = array_of(completion);
  if (before == nullptr || after == nullptr) {
    return mistake(R"(expected {"messages": [...]}, or {"prompt": "...", "completion": )"
                   R"("..."} with two texts or two lists of messages)");
  }
  JsonValue::Array messages = *before;
  messages.insert(messages.end(), after->begin(), after->end());
  VOLTA_TRY(check_messages(messages, place));
  return conversations.add(messages, before->size(), tools, examples);
}

Status add_line(std::string_view text, const ChatRenderer& renderer, Conversations& conversations,
                const std::string& place, std::vector<ChatExample>& examples) {
  VOLTA_TRY(const JsonValue line, parse_json(text, place, {}, renderer.interrupted));
  const JsonValue* tools = line.find("tools");
  if (tools != nullptr && array_of(tools) == nullptr) tools = nullptr;
  const JsonValue::Array* messages = array_of(line.find("messages"));
  const bool texts = messages == nullptr && line.find("prompt") != nullptr &&
                     line.find("prompt")->if_string() != nullptr;
  if (renderer.chat_template == nullptr && !texts) {
    return mistake(
        "the model has no chat template, which messages need: put it beside the model "
        "as chat_template.jinja, or give texts as \"prompt\" and \"completion\"");
  }
  if (messages != nullptr) {
    VOLTA_TRY(check_messages(*messages, place));
    return conversations.add(*messages, 0, tools, examples);
  }
  return add_completion(line, renderer, conversations, tools, place, examples);
}

// A row that still has room.
struct OpenRow {
  std::size_t row = 0;
  std::size_t used = 0;
};

// Finds the row for `length` more tokens, and takes it from the open ones when it is then full.
class RowFinder {
 public:
  RowFinder(std::size_t time, bool packing) : time_(time), packing_(packing) {}

  OpenRow take(std::size_t length) {
    const auto fits = [&](const OpenRow& row) { return row.used + length <= time_; };
    auto found = std::ranges::find_if(open_, fits);
    if (found == open_.end()) {
      if (open_.size() == kOpenRows)
        open_.erase(std::ranges::max_element(open_, {}, &OpenRow::used));
      found = open_.insert(open_.end(), OpenRow{.row = rows_++});
    }
    const OpenRow place = *found;
    found->used += length;
    if (!packing_ || found->used == time_) open_.erase(found);
    return place;
  }
  std::size_t rows() const { return rows_; }

 private:
  std::size_t time_;
  bool packing_;
  std::size_t rows_ = 0;
  std::vector<OpenRow> open_;
};

}  // namespace

bool is_chat_file(std::string_view path) { return path.ends_with(".jsonl"); }

Result<std::vector<ChatExample>> parse_chats(std::string_view text, std::string_view name,
                                             const ChatRenderer& renderer) {
  std::vector<ChatExample> examples;
  Conversations conversations(renderer);
  std::int64_t number = 0;
  text = skip_byte_order_mark(text);
  while (!text.empty()) {
    const std::string place = fmt::format("{}: line {}", name, ++number);
    if (renderer.interrupted && renderer.interrupted()) {
      return fail(ErrorCode::kInterrupted, fmt::format("{}: interrupted", place));
    }
    const std::string_view beginning = text.substr(0, kMaxLineBytes + 1);
    const std::size_t end = std::min(beginning.find('\n'), beginning.size());
    if (end > kMaxLineBytes) {
      return mistake(fmt::format("{}: longer than {}; a line must be one conversation", place,
                                 format_bytes(static_cast<std::int64_t>(kMaxLineBytes))));
    }
    std::string_view line = beginning.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos) {
      return mistake(fmt::format("{}: empty; each line must be a conversation", place));
    }
    const Status added = add_line(line, renderer, conversations, place, examples);
    if (!added) return in_line(added.error(), place);
  }
  if (!examples.empty()) return examples;
  return fail(ErrorCode::kInvalidFile, fmt::format("{} is empty: no conversation to learn", name));
}

std::int64_t row_length(std::span<const ChatExample> chats, std::int64_t most) {
  constexpr std::int64_t kMultiple = 8;  // Rows of 16-bit values begin at multiples of 16 bytes.
  std::int64_t longest = 1;
  for (const ChatExample& chat : chats) {
    const std::int64_t fitting = std::min(std::ssize(chat.ids), most + 1);
    const auto end = chat.is_answer.begin() + fitting;
    const bool learned = fitting > 0 && std::find(chat.is_answer.begin() + 1, end, true) != end;
    if (learned) longest = std::max(longest, fitting - 1);  // The last token is a target only.
  }
  return std::min(ceil_div(longest, kMultiple) * kMultiple, most);
}

PackedChats pack_chats(std::span<const ChatExample> chats, std::int64_t time, bool packing,
                       std::uint64_t seed) {
  PackedChats packed;
  const auto row_size = static_cast<std::size_t>(time);
  RowFinder rows(row_size, packing);
  if (!packing) {
    packed.rows.ids.reserve(chats.size() * row_size);
    packed.rows.targets.reserve(chats.size() * row_size);
  }
  for (const std::uint32_t number : shuffled(chats.size(), seed, 0)) {
    const ChatExample& chat = chats[number];
    // The last token of a conversation as long as a row and one more is a target only.
    const std::size_t fitting = std::min(chat.ids.size(), row_size + 1);
    packed.longest = std::max(packed.longest, std::ssize(chat.ids) - 1);
    std::int64_t answers = 0;
    for (std::size_t i = 1; i < fitting; ++i) answers += chat.is_answer[i] ? 1 : 0;
    if (answers == 0) {
      ++packed.left_out;
      continue;
    }
    packed.cut += fitting < chat.ids.size() ? 1 : 0;
    packed.targets += answers;
    ++packed.conversations;
    const std::size_t length = std::min(chat.ids.size(), row_size);
    packed.tokens += static_cast<std::int64_t>(length);
    const OpenRow place = rows.take(length);
    packed.rows.ids.resize(rows.rows() * row_size, 0);
    packed.rows.targets.resize(rows.rows() * row_size, -1);
    const std::size_t begin = place.row * row_size + place.used;
    for (std::size_t i = 0; i < length; ++i) {
      packed.rows.ids[begin + i] = chat.ids[i];
      if (i + 1 < fitting && chat.is_answer[i + 1])
        packed.rows.targets[begin + i] = chat.ids[i + 1];
    }
  }
  packed.rows.count = static_cast<std::int64_t>(rows.rows());
  packed.rows.time = time;
  return packed;
}

}  // namespace volta
