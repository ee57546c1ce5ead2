#include "train/dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"
#include "formats/token_rows.h"
#include "train/dataset_parts.h"
#include "train/long_text.h"

namespace volta {
namespace {

constexpr std::int64_t kMaxTextBytes = std::int64_t{1} << 31;

Result<std::string> read_text(const std::string& path, const Interruption& interrupted) {
  VOLTA_TRY(std::string text, read_text_file(path, kMaxTextBytes, interrupted));
  if (!text.empty()) return text;
  return fail(ErrorCode::kInvalidFile, fmt::format("{} is empty: choose a file with text", path));
}

Result<std::vector<std::string>> read_texts(std::span<const std::string> paths,
                                            const Interruption& interrupted) {
  std::vector<std::string> texts;
  for (const std::string& path : paths) {
    VOLTA_TRY(std::string text, read_text(path, interrupted));
    texts.push_back(std::move(text));
  }
  return texts;
}

DataOrigin origin_of(std::span<const std::string> paths, std::span<const std::string> texts) {
  DataOrigin origin{.path = name_of(paths), .bytes = 0, .xxh3 = {}};
  std::vector<std::string> hashes;
  for (const std::string& text : texts) {
    origin.bytes += std::ssize(text);
    hashes.push_back(hex(hash64(text)));
  }
  origin.xxh3 = hash_of(hashes);
  return origin;
}

Result<std::vector<std::int32_t>> encode_text(const std::string& text, const Tokenizer& tokenizer,
                                              const std::string& path) {
  VOLTA_TRY(check_utf8(text, tokenizer, path));
  auto ids = tokenizer.encode(text);
  if (!ids) return in_file(ids.error(), path);
  return ids;
}

Result<bool> are_long(const DataFiles& files) {
  std::int64_t bytes = 0;
  for (const std::string& path : files.train) {
    VOLTA_TRY(const std::int64_t size, file_size(path));
    bytes += size;
  }
  return bytes > files.most_in_memory;
}

}  // namespace

DataKind data_kind(std::string_view path) {
  if (path.ends_with(".safetensors")) return DataKind::kTokenIds;
  if (path.ends_with(".bin")) return DataKind::kTokenStream;
  return is_chat_file(path) ? DataKind::kChats : DataKind::kText;
}

std::string Dataset::ids_xxh3() const {
  std::string hashes;
  const auto add = [&hashes](std::span<const std::int32_t> ids) {
    hashes += hex(hash64(std::as_bytes(ids)));
  };
  if (train) add(*train);
  if (mapped) {
    constexpr std::int64_t kMost = std::int64_t{1} << 20;
    std::vector<std::int32_t> first(static_cast<std::size_t>(std::min(mapped_train, kMost)));
    mapped->copy(0, first);
    add(first);
  }
  for (const ChatExample& chat : chats) {
    add(chat.ids);
    std::string answers;
    for (const bool is_answer : chat.is_answer) answers += is_answer ? '1' : '0';
    hashes += hex(hash64(answers));
  }
  return hex(hash64(hashes));
}

Result<Dataset> load_texts(const DataFiles& files, std::string_view kind,
                           std::shared_ptr<const Tokenizer> tokenizer,
                           const Interruption& interrupted) {
  VOLTA_TRY(const bool mapped, are_long(files));
  if (mapped) {
    VOLTA_TRY(Dataset data, map_texts(files, kind, std::move(tokenizer), interrupted));
    if (files.validation.empty()) return data;
    VOLTA_TRY(const std::vector<std::string> text, read_texts({&files.validation, 1}, interrupted));
    data.validation_file = origin_of({&files.validation, 1}, text);
    VOLTA_TRY(auto validation, encode_text(text.front(), *data.tokenizer, files.validation));
    data.validation = std::make_shared<const std::vector<std::int32_t>>(std::move(validation));
    return data;
  }
  VOLTA_TRY(std::vector<std::string> texts, read_texts(files.train, interrupted));
  Dataset data;
  data.is_text = true;
  static_cast<DataOrigin&>(data) = origin_of(files.train, texts);
  if (tokenizer == nullptr) {
    for (std::size_t i = 0; kind == "char" && i < texts.size(); ++i) {
      VOLTA_TRY(check_utf8(texts[i], files.train[i]));
    }
    const std::string joined =
        texts.size() == 1 ? std::string() : fmt::format("{}", fmt::join(texts, ""));
    auto trained = make_tokenizer(kind, texts.size() == 1 ? texts.front() : joined, interrupted);
    // Errors in a tokenizer's file already name that file.
    const bool of_text = !trained && trained.error().code() == ErrorCode::kInvalidArgument;
    if (!trained)
      return of_text ? in_file(trained.error(), data.path) : std::unexpected(trained.error());
    tokenizer = *std::move(trained);
  }
  const double fraction = files.validation.empty() ? files.val_fraction : 0.0;
  std::vector<std::int32_t> train, validation;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    VOLTA_TRY(auto ids, encode_text(texts[i], *tokenizer, files.train[i]));
    texts[i] = std::string();
    data.tokens += std::ssize(ids);
    const auto split = ids.begin() + split_place(ids.size(), fraction);
    validation.insert(validation.end(), split, ids.end());
    ids.erase(split, ids.end());
    if (train.empty()) {
      train = std::move(ids);
    } else {
      train.insert(train.end(), ids.begin(), ids.end());
    }
  }
  if (!files.validation.empty()) {
    VOLTA_TRY(const std::vector<std::string> text, read_texts({&files.validation, 1}, interrupted));
    data.validation_file = origin_of({&files.validation, 1}, text);
    VOLTA_TRY(validation, encode_text(text.front(), *tokenizer, files.validation));
  }
  data.tokenizer = std::move(tokenizer);
  data.train = std::make_shared<const std::vector<std::int32_t>>(std::move(train));
  data.validation = std::make_shared<const std::vector<std::int32_t>>(std::move(validation));
  return data;
}

Result<Dataset> load_text(const std::string& path, std::string_view kind,
                          std::shared_ptr<const Tokenizer> tokenizer, double val_fraction,
                          const Interruption& interrupted) {
  return load_texts({.train = {path}, .val_fraction = val_fraction}, kind, std::move(tokenizer),
                    interrupted);
}

Result<HeldOutText> load_held_out_text(const std::string& path, const Tokenizer& tokenizer,
                                       double fraction, const Interruption& interrupted) {
  VOLTA_TRY(const std::string text, read_text(path, interrupted));
  return hold_out_text(text, path, tokenizer, fraction);
}

Result<HeldOutText> hold_out_text(const std::string& text, const std::string& path,
                                  const Tokenizer& tokenizer, double fraction) {
  if (!(fraction > 0.0 && fraction <= 1.0)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--val-fraction {}: the part of the text must be above 0 and at most 1",
                            fraction));
  }
  VOLTA_TRY(check_utf8(text, tokenizer, path));
  const bool whole = fraction == 1.0;
  auto ids = whole ? tokenizer.encode_prompt(text) : tokenizer.encode(text);
  if (!ids) return in_file(ids.error(), path);
  ids->erase(ids->begin(), ids->begin() + split_place(ids->size(), fraction));
  if (ids->size() < 2) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: {} tokens to evaluate; two are needed, one to begin with and one "
                            "to predict: give a longer text or a larger --val-fraction",
                            path, ids->size()));
  }
  HeldOutText held_out{.tokens = *std::move(ids), .bytes = std::ssize(text)};
  if (!whole) held_out.bytes = std::ssize(tokenizer.decode(held_out.tokens));
  return held_out;
}

namespace {

// Finds the first of the 16-bit ids in `piece` that is not below `vocab_size`.
std::optional<std::pair<std::int64_t, std::uint32_t>> find_wrong_id(
    std::span<const std::byte> piece, std::int64_t vocab_size) {
  for (std::size_t at = 0; at + 1 < piece.size(); at += 2) {
    const auto id = std::to_integer<std::uint32_t>(piece[at]) |
                    (std::to_integer<std::uint32_t>(piece[at + 1]) << 8U);
    if (id >= vocab_size) return std::pair(static_cast<std::int64_t>(at / 2), id);
  }
  return std::nullopt;
}

// Reads a file of 16-bit ids to its end: all of them are checked before a run begins, because it
// may meet a wrong one days later.
Result<DataOrigin> check_ids(const MappedFile& file, std::int64_t vocab_size,
                             const Interruption& interrupted) {
  std::int64_t read = 0;
  Status valid;
  const auto go_on = [&](std::int64_t) { return valid && (!interrupted || !interrupted()); };
  const auto check = [&](std::span<const std::byte> piece) {
    if (const auto wrong = find_wrong_id(piece, vocab_size)) {
      valid = fail(ErrorCode::kInvalidFile,
                   fmt::format("{}: token {} is {}; ids must be from 0 to {} for this vocabulary",
                               file.path(), read + wrong->first, wrong->second, vocab_size - 1));
    }
    read += std::ssize(piece) / 2;
  };
  const auto hash = hash_file(file, go_on, check);
  VOLTA_TRY(valid);
  if (!hash) return std::unexpected(hash.error());
  return DataOrigin{.path = file.path(), .bytes = file.size(), .xxh3 = hex(*hash)};
}

}  // namespace

Result<Dataset> load_token_stream(const DataFiles& files, std::int64_t vocab_size,
                                  const Interruption& interrupted) {
  if (files.train.size() != 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} files of 16-bit token ids; a run takes one: join them with cat",
                            files.train.size()));
  }
  Dataset data;
  VOLTA_TRY(MappedTokens tokens, MappedTokens::open(files.train.front()));
  VOLTA_TRY(static_cast<DataOrigin&>(data), check_ids(tokens.file(), vocab_size, interrupted));
  const bool split = files.validation.empty();
  VOLTA_TRY(use_mapped(std::move(tokens), split ? files.val_fraction : 0.0, data));
  if (split) return data;
  VOLTA_TRY(const MappedTokens validation, MappedTokens::open(files.validation));
  if (std::cmp_greater(validation.size(), kMostMappedValidation)) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: {} token ids to validate with, and at most {} are held in memory; "
                    "use its first {} bytes (head -c)",
                    files.validation, validation.size(), kMostMappedValidation,
                    kMostMappedValidation * static_cast<std::int64_t>(sizeof(std::uint16_t))));
  }
  VOLTA_TRY(data.validation_file, check_ids(validation.file(), vocab_size, interrupted));
  std::vector<std::int32_t> ids(validation.size());
  validation.copy(0, ids);
  VOLTA_TRY(validation.file().check_unchanged());
  data.validation = std::make_shared<const std::vector<std::int32_t>>(std::move(ids));
  return data;
}

Status check_lengths(const Dataset& data, std::int64_t time) {
  const std::int64_t train = data.train_tokens();
  const auto validation = static_cast<std::int64_t>(data.validation->size());
  if (train <= time) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: {} of its {} tokens are for training; a context of {} needs at "
                            "least {}. Use a longer text or a shorter context (--context)",
                            data.path, train, data.tokens, time, time + 1));
  }
  if (validation > 0 && validation <= time && data.validation_file) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: it has {} tokens to validate with; a context of {} needs at least "
                            "{}. Use a longer text or a shorter context (--context)",
                            data.validation_file->path, validation, time, time + 1));
  }
  if (validation > 0 && validation <= time) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: {} of its {} tokens are for validation; a context of {} needs at "
                            "least {}. Use a longer text, a shorter context (--context), or "
                            "--val-fraction 0 for no validation",
                            data.path, validation, data.tokens, time, time + 1));
  }
  return {};
}

Result<Dataset> load_chats(const DataFiles& files, const ChatRenderer& renderer,
                           std::uint64_t seed) {
  Dataset data;
  const auto read = [&](std::span<const std::string> paths,
                        std::vector<ChatExample>& chats) -> Result<DataOrigin> {
    std::vector<std::string> hashes;
    DataOrigin origin{.path = name_of(paths), .bytes = 0, .xxh3 = {}};
    for (const std::string& path : paths) {
      VOLTA_TRY(const MappedFile file, MappedFile::open(path));
      VOLTA_TRY(auto found, parse_chats(as_text(file.bytes()), path, renderer));
      VOLTA_TRY(hashes.emplace_back(), file_hash(file, renderer.interrupted));
      origin.bytes += file.size();
      std::ranges::move(found, std::back_inserter(chats));
    }
    origin.xxh3 = hash_of(hashes);
    return origin;
  };
  std::vector<ChatExample> chats;
  VOLTA_TRY(static_cast<DataOrigin&>(data), read(files.train, chats));
  for (const ChatExample& chat : chats) data.tokens += std::ssize(chat.ids);
  if (!files.validation.empty()) {
    VOLTA_TRY(data.validation_file, read({&files.validation, 1}, data.validation_chats));
    data.chats = std::move(chats);
    return data;
  }
  const auto count = static_cast<double>(chats.size());
  const auto validated =
      std::min(static_cast<std::size_t>(std::ceil(count * files.val_fraction)), chats.size() - 1);
  // The order of this choice is another than that of any pass over the rows.
  const auto order = shuffled(chats.size(), seed, std::numeric_limits<std::uint32_t>::max());
  std::vector<bool> chosen(chats.size());
  for (std::size_t i = 0; i < validated; ++i) chosen[order[i]] = true;
  for (std::size_t i = 0; i < chats.size(); ++i) {
    (chosen[i] ? data.validation_chats : data.chats).push_back(std::move(chats[i]));
  }
  return data;
}

Result<Dataset> load_examples(const DataFiles& files, std::int64_t vocab_size,
                              const Interruption& interrupted) {
  Dataset data;
  const auto read = [&](std::span<const std::string> paths, TokenRows& rows) -> Result<DataOrigin> {
    std::vector<std::string> hashes;
    DataOrigin origin{.path = name_of(paths), .bytes = 0, .xxh3 = {}};
    for (const std::string& path : paths) {
      // Opened first: a file that is replaced while its rows are read is noticed by the hash.
      VOLTA_TRY(const MappedFile bytes, MappedFile::open(path));
      // At least one token and its successor.
      VOLTA_TRY(TokenRows more, load_token_rows(path, vocab_size, 2));
      if (rows.length != 0 && more.length != rows.length) {
        return fail(ErrorCode::kInvalidFile,
                    fmt::format("{}: its rows have {} ids, those of the other files {}; all must "
                                "have the same length",
                                path, more.length, rows.length));
      }
      rows.length = more.length;
      rows.count += more.count;
      rows.ids.insert(rows.ids.end(), more.ids.begin(), more.ids.end());
      origin.bytes += bytes.size();
      VOLTA_TRY(hashes.emplace_back(), file_hash(bytes, interrupted));
    }
    origin.xxh3 = hash_of(hashes);
    return origin;
  };
  TokenRows rows;
  VOLTA_TRY(static_cast<DataOrigin&>(data), read(files.train, rows));
  data.examples = rows.count;
  data.example_length = rows.length - 1;
  data.tokens = std::ssize(rows.ids);
  data.rows = std::move(rows.ids);
  if (files.validation.empty()) return data;
  TokenRows validation{.ids = {}, .count = 0, .length = rows.length};
  VOLTA_TRY(data.validation_file, read({&files.validation, 1}, validation));
  data.validation_rows = label_rows(validation.ids, validation.count, validation.length - 1);
  return data;
}

}  // namespace volta
