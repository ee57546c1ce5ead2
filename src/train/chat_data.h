// Conversations to fine-tune on: JSON lines, rendered by the model's chat template, with the loss
// on the answers only. A line is read at a time, so a file may be larger than memory; its tokens
// may not.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/work_budget.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "train/data.h"

namespace [[gnu::visibility("default")]] volta {

/// True for a path that ends in .jsonl: conversations.
bool is_chat_file(std::string_view path);

/// The tokens of a conversation, and which of them the model is trained to predict.
struct ChatExample {
  std::vector<std::int32_t> ids;
  std::vector<bool> is_answer;  ///< For each id.
};

/// What makes tokens of a conversation.
struct ChatRenderer {
  /// Null for a model without one: then only texts as `prompt` and `completion` can be read, which
  /// are joined as they are.
  const ChatTemplate* chat_template = nullptr;
  const Tokenizer* tokenizer = nullptr;
  Interruption interrupted = {};
  /// The length in tokens of the rows that pack_chats() will make. An answer that follows more
  /// tokens than that cannot be in a row, so it is not marked. This bounds the time for a long
  /// conversation, which is rendered once for each answer.
  std::int64_t row_tokens = std::numeric_limits<std::int64_t>::max();
};

/// The conversations of JSON lines. A line is an object with either
///   "messages": messages as volta chat takes them (and "tools", if the template has a use for
///   them); the loss is on all answers of the assistant, or
///   "prompt" and "completion": both texts (a message of the user and its answer), or both lists of
///   messages; the loss is on the completion.
/// Other members are ignored. An answer ends with the token that ends a turn. Where the template
/// changes an answer once it is no longer the last one (it may leave out the thoughts), the
/// conversation up to that answer becomes an example of its own. Templates that write the date get
/// the same one every time, so that a resumed run reads the same data.
/// kInvalidFile, with the line, for an empty line, a line that is not JSON or too long, a message
/// without a role, a conversation without an answer, an empty answer, and for one that the template
/// refuses or changes so much that its answers cannot be found; kUnsupported; kInterrupted.
Result<std::vector<ChatExample>> parse_chats(std::string_view text, std::string_view name,
                                             const ChatRenderer& renderer);

/// Conversations in rows.
struct PackedChats {
  LabelledRows rows;
  std::int64_t conversations = 0;  ///< In the rows.
  std::int64_t targets = 0;        ///< Tokens of answers in the rows.
  std::int64_t cut = 0;            ///< Conversations in the rows whose end did not fit.
  std::int64_t left_out = 0;       ///< Conversations whose part that fits has no answer.
  std::int64_t longest = 0;        ///< The length of rows in which each would fit whole.
  std::int64_t tokens = 0;         ///< Tokens of conversations in the rows; the rest is padding.
};
/// The length of rows that hold one conversation each: at most `most` tokens, and fewer, a multiple
/// of 8, if no conversation with an answer within `most` is as long.
std::int64_t row_length(std::span<const ChatExample> chats, std::int64_t most);
/// Puts conversations into rows of `time` tokens, in an order that depends on the seed. With
/// `packing`, a row holds as many whole conversations as fit, one after the other; otherwise one.
/// Padding and everything that is not an answer has no target, and neither has the last token of a
/// conversation, which would predict the next one. A conversation that is longer than a row is cut
/// at its end.
PackedChats pack_chats(std::span<const ChatExample> chats, std::int64_t time, bool packing,
                       std::uint64_t seed);

}  // namespace volta
