#include "train/long_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/function_ref.h"
#include "base/memory.h"
#include "base/text.h"
#include "train/dataset_parts.h"

namespace volta {
namespace {

// A text is read in pieces of at most this size, so that the memory for it does not grow.
constexpr std::int64_t kPieceBytes = std::int64_t{64} << 20;
constexpr std::size_t kBlockIds = 1 << 16;

// The smallest numbers that hold all ids of a vocabulary.
IdWidth width_for(std::int64_t vocab) {
  if (vocab <= 1 << 8) return IdWidth::kOneByte;
  return vocab <= 1 << 16 ? IdWidth::kTwoBytes : IdWidth::kFourBytes;
}

// The first `most` bytes of a text at most, up to the end of a line, or of a character where no
// line ends.
std::string_view first_piece(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  const std::size_t line = text.substr(0, most).rfind('\n');
  if (line != std::string_view::npos) return text.substr(0, line + 1);
  std::size_t end = most;
  while (end > 1 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

// A text is read in pieces of at most `most` bytes that end with a line, or with a character where
// no line ends. The memory of a piece is returned to the system after it.
Status for_each_piece(const MappedFile& text, std::int64_t most, const Interruption& interrupted,
                      FunctionRef<Status(std::string_view piece, std::size_t before)> read) {
  std::string_view rest = as_text(text.bytes());
  for (std::size_t before = 0; !rest.empty();) {
    if (interrupted && interrupted()) {
      return fail(ErrorCode::kInterrupted, fmt::format("interrupted reading {}", text.path()));
    }
    const std::string_view piece = first_piece(rest, static_cast<std::size_t>(most));
    VOLTA_TRY(read(piece, before));
    text.release(static_cast<std::int64_t>(before), std::ssize(piece));
    before += piece.size();
    rest.remove_prefix(piece.size());
  }
  return text.check_unchanged();
}

// Writes the ids of one text after the other, but for those at the end of each text that are for
// validation.
class TokenWriter {
 public:
  TokenWriter(FileWriter file, IdWidth width, double val_fraction)
      : file_(std::move(file)), width_(width), val_fraction_(val_fraction) {}

  Status add(std::span<const std::int32_t> ids) {
    pending_.insert(pending_.end(), ids.begin(), ids.end());
    read_ += ids.size();
    // What may yet be for validation is kept back.
    constexpr auto kMost = static_cast<std::size_t>(kMostMappedValidation);
    return pending_.size() <= kMost ? Status{} : write_first(pending_.size() - kMost);
  }
  Status end_text() {
    const auto held = static_cast<std::size_t>(split_place(read_, val_fraction_));
    const std::size_t room = static_cast<std::size_t>(kMostMappedValidation) - validation_.size();
    const std::size_t count = std::min({read_ - held, room, pending_.size()});
    VOLTA_TRY(write_first(pending_.size() - count));
    validation_.insert(validation_.end(), pending_.begin(), pending_.end());
    pending_.clear();
    read_ = 0;
    return {};
  }
  std::vector<std::int32_t> take_validation() { return std::move(validation_); }
  std::int64_t written() const { return written_; }

  // Closes the file and maps it.
  Result<MappedTokens> map() {
    VOLTA_TRY(file_.close());
    return MappedTokens::open(file_.path(), width_);
  }

 private:
  Status write_first(std::size_t count) {
    std::vector<std::byte> bytes;
    std::span<const std::int32_t> ids = std::span(pending_).first(count);
    while (!ids.empty()) {
      const std::span<const std::int32_t> block = ids.first(std::min(ids.size(), kBlockIds));
      ids = ids.subspan(block.size());
      bytes.clear();
      for (const std::int32_t id : block) {
        const auto one = std::bit_cast<std::array<std::byte, sizeof(id)>>(id);  // Little-endian.
        const auto used = std::span(one).first(static_cast<std::size_t>(width_));
        bytes.insert(bytes.end(), used.begin(), used.end());
      }
      VOLTA_TRY(file_.write(bytes));
    }
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(count));
    written_ += static_cast<std::int64_t>(count);
    return {};
  }

  FileWriter file_;
  IdWidth width_;
  double val_fraction_;
  std::vector<std::int32_t> pending_;
  std::vector<std::int32_t> validation_;
  std::size_t read_ = 0;  // Of this text.
  std::int64_t written_ = 0;
};

// A tokenizer that is made from a text has the characters of all texts.
Result<std::shared_ptr<const Tokenizer>> make_from_texts(std::string_view kind,
                                                         std::span<const MappedFile> texts,
                                                         const Interruption& interrupted) {
  if (kind != "char") return make_tokenizer(kind, "", interrupted);
  std::string characters;
  for (const MappedFile& text : texts) {
    const std::string& path = text.path();
    const auto read = [&](std::string_view piece, std::size_t before) -> Status {
      VOLTA_TRY(check_utf8(piece, path, before));
      auto trained = make_tokenizer(kind, piece, interrupted);
      if (!trained) return in_file(trained.error(), path);
      for (std::int64_t id = 0; id < (*trained)->vocab_size(); ++id) {
        characters += (*trained)->token_bytes(static_cast<std::int32_t>(id));
      }
      return {};
    };
    VOLTA_TRY(for_each_piece(text, kPieceBytes, interrupted, read));
  }
  return make_tokenizer(kind, characters, interrupted);
}

Status add_text(const MappedFile& text, std::int64_t most_in_memory, const Tokenizer& tokenizer,
                const Interruption& interrupted, TokenWriter& writer) {
  VOLTA_TRY(for_each_piece(text, kPieceBytes, interrupted,
                           [&](std::string_view piece, std::size_t before) {
                             return check_utf8(piece, tokenizer, text.path(), before);
                           }));
  const auto encode = [&](std::string_view piece, std::size_t) -> Status {
    auto ids = tokenizer.encode(piece);
    if (!ids) return in_file(ids.error(), text.path());
    return writer.add(*ids);
  };
  VOLTA_TRY(for_each_piece(text, std::min(most_in_memory, kPieceBytes), interrupted, encode));
  return writer.end_text();
}

// Writes the token ids of all texts, and maps them.
Result<MappedTokens> write_texts(std::span<const MappedFile> texts, const DataFiles& files,
                                 const Tokenizer& tokenizer, const Interruption& interrupted,
                                 TokenWriter& writer) {
  for (const MappedFile& text : texts) {
    VOLTA_TRY(add_text(text, files.most_in_memory, tokenizer, interrupted, writer));
  }
  return writer.map();
}

Result<std::vector<MappedFile>> open_texts(std::span<const std::string> paths,
                                           const Interruption& interrupted, Dataset& data) {
  std::vector<MappedFile> texts;
  std::vector<std::string> hashes;
  data.path = name_of(paths);
  for (const std::string& path : paths) {
    VOLTA_TRY(texts.emplace_back(), MappedFile::open(path));
    if (texts.back().size() == 0) {
      return fail(ErrorCode::kInvalidFile,
                  fmt::format("{} is empty: choose a file with text", path));
    }
    data.bytes += texts.back().size();
    VOLTA_TRY(hashes.emplace_back(), file_hash(texts.back(), interrupted));
  }
  data.xxh3 = hash_of(hashes);
  return texts;
}

}  // namespace

Result<Dataset> map_texts(const DataFiles& files, std::string_view kind,
                          std::shared_ptr<const Tokenizer> tokenizer,
                          const Interruption& interrupted) {
  Dataset data;
  data.is_text = true;
  VOLTA_TRY(const std::vector<MappedFile> texts, open_texts(files.train, interrupted, data));
  if (tokenizer == nullptr) {
    VOLTA_TRY(tokenizer, make_from_texts(kind, texts, interrupted));
  }
  data.tokenizer = tokenizer;
  const double fraction = files.validation.empty() ? files.val_fraction : 0.0;
  if (tokenizer->kind() == "byte" && texts.size() == 1) {
    VOLTA_TRY(MappedTokens bytes, MappedTokens::open(files.train.front(), IdWidth::kOneByte));
    VOLTA_TRY(use_mapped(std::move(bytes), fraction, data));
    return data;
  }
  VOLTA_TRY(create_directories(parent_path(files.scratch)));
  VOLTA_TRY(FileWriter file, FileWriter::open_temporary(files.scratch + ".tokens"));
  const std::string place = file.path();
  TokenWriter writer(std::move(file), width_for(tokenizer->vocab_size()), fraction);
  auto tokens = write_texts(texts, files, *tokenizer, interrupted, writer);
  // A mapped file stays until the mapping ends. After an error nothing is to stay.
  const Status removed = remove_all(place);
  if (!tokens) return std::unexpected(std::move(tokens).error());
  VOLTA_TRY(removed);
  data.mapped_train = writer.written();
  std::vector<std::int32_t> validation = writer.take_validation();
  data.tokens = data.mapped_train + std::ssize(validation);
  data.validation = std::make_shared<const std::vector<std::int32_t>>(std::move(validation));
  data.mapped = std::make_shared<const MappedTokens>(*std::move(tokens));
  return data;
}

}  // namespace volta
