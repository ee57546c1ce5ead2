#include "train/dataset_parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"

namespace volta {

std::unexpected<Error> in_file(const Error& error, const std::string& path) {
  const bool callers = error.code() == ErrorCode::kInvalidArgument;
  return fail(callers ? ErrorCode::kInvalidFile : error.code(),
              fmt::format("{}: {}", path, error.message()));
}

Status check_utf8(std::string_view text, const Tokenizer& tokenizer, const std::string& path,
                  std::size_t before) {
  if (tokenizer.kind() == "byte") {
    if (const auto encoding = find_wide_encoding(text); encoding && before == 0) {
      log(LogLevel::kWarning,
          fmt::format("{}: this looks like {}; its bytes are learned as they are", path,
                      *encoding));
    }
    return {};
  }
  return check_utf8(text, path, before);
}

Status check_utf8(std::string_view text, const std::string& path, std::size_t before) {
  const auto mistake = utf8_mistake(text, before);
  if (!mistake) return {};
  return fail(ErrorCode::kInvalidFile, fmt::format("{}: {}", path, *mistake));
}

std::string name_of(std::span<const std::string> paths) {
  return paths.size() == 1 ? paths.front()
                           : fmt::format("{} and {} more", paths.front(), paths.size() - 1);
}

Result<std::string> file_hash(const MappedFile& file, const Interruption& interrupted) {
  VOLTA_TRY(const std::uint64_t hash,
            hash_file(file, [&](std::int64_t) { return !interrupted || !interrupted(); }));
  return hex(hash);
}

std::string hash_of(std::span<const std::string> hashes) {
  return hashes.size() == 1 ? hashes.front()
                            : hex(hash64(fmt::format("{}", fmt::join(hashes, " "))));
}

std::ptrdiff_t split_place(std::size_t tokens, double fraction) {
  return static_cast<std::ptrdiff_t>(static_cast<double>(tokens) * (1.0 - fraction));
}

Status use_mapped(MappedTokens tokens, double fraction, Dataset& data) {
  data.tokens = static_cast<std::int64_t>(tokens.size());
  data.mapped_train = std::max<std::int64_t>(split_place(tokens.size(), fraction),
                                             data.tokens - kMostMappedValidation);
  std::vector<std::int32_t> rest(static_cast<std::size_t>(data.tokens - data.mapped_train));
  tokens.copy(static_cast<std::size_t>(data.mapped_train), rest);
  VOLTA_TRY(tokens.file().check_unchanged());
  data.validation = std::make_shared<const std::vector<std::int32_t>>(std::move(rest));
  data.mapped = std::make_shared<const MappedTokens>(std::move(tokens));
  return {};
}

}  // namespace volta
