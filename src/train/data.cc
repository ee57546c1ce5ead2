#include "train/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <numeric>
#include <utility>

#include "base/rng.h"

namespace volta {
namespace {

void copy_ids(std::span<const std::int32_t> all, std::size_t begin, std::span<std::int32_t> ids) {
  std::ranges::copy(all.subspan(begin, ids.size()), ids.begin());
}
void copy_ids(const MappedTokens& all, std::size_t begin, std::span<std::int32_t> ids) {
  all.copy(begin, ids);
}

// Fills the rows of a batch with examples of time + 1 ids; `begin(row)` is where in `all` the
// example of a row begins.
template <typename Ids, typename Begin>
void fill_rows(const Ids& all, std::size_t time, std::span<std::int32_t> ids,
               std::span<std::int32_t> targets, const Begin& begin) {
  for (std::size_t row = 0; row < ids.size() / time; ++row) {
    const std::size_t place = begin(row);
    copy_ids(all, place, ids.subspan(row * time, time));
    copy_ids(all, place + 1, targets.subspan(row * time, time));
  }
}

// Reads ids of type Id from the bytes of a file.
template <typename Id>
void read_ids(std::span<const std::byte> bytes, std::size_t begin, std::span<std::int32_t> ids) {
  bytes = bytes.subspan(begin * sizeof(Id), ids.size() * sizeof(Id));
  for (std::int32_t& id : ids) {
    std::array<std::byte, sizeof(Id)> one{};
    std::ranges::copy(bytes.first(sizeof(Id)), one.begin());
    bytes = bytes.subspan(sizeof(Id));
    id = static_cast<std::int32_t>(std::bit_cast<Id>(one));
  }
}

Status check_count(std::int64_t count, std::int64_t time) {
  if (count > time) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("the text has {} tokens; a context of {} needs at least {}. Use a longer "
                          "text or a shorter context",
                          count, time, time + 1));
}

}  // namespace

Result<MappedTokens> MappedTokens::open(const std::string& path, IdWidth width) {
  MappedTokens tokens;
  tokens.width_ = width;
  VOLTA_TRY(tokens.file_, MappedFile::open(path));
  const auto bytes = static_cast<std::int64_t>(width);
  if (tokens.file_.size() % bytes != 0 || tokens.file_.size() == 0) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: {} bytes are not {}-bit token ids", path,
                                                     tokens.file_.size(), 8 * bytes));
  }
  return tokens;
}

std::size_t MappedTokens::size() const {
  return file_.bytes().size() / static_cast<std::size_t>(width_);
}

void MappedTokens::copy(std::size_t begin, std::span<std::int32_t> ids) const {
  switch (width_) {
    case IdWidth::kOneByte:
      return read_ids<std::uint8_t>(file_.bytes(), begin, ids);
    case IdWidth::kTwoBytes:
      return read_ids<std::uint16_t>(file_.bytes(), begin, ids);
    case IdWidth::kFourBytes:
      return read_ids<std::uint32_t>(file_.bytes(), begin, ids);
  }
}

Result<RandomWindows> RandomWindows::create(std::shared_ptr<const std::vector<std::int32_t>> tokens,
                                            std::int64_t time, std::uint64_t seed,
                                            std::uint32_t stream) {
  VOLTA_TRY(check_count(std::ssize(*tokens), time));
  RandomWindows windows;
  windows.count_ = std::ssize(*tokens);
  windows.tokens_ = std::move(tokens);
  windows.time_ = time;
  windows.seed_ = seed;
  windows.stream_ = stream;
  return windows;
}

Result<RandomWindows> RandomWindows::create(std::shared_ptr<const MappedTokens> tokens,
                                            std::int64_t count, std::int64_t time,
                                            std::uint64_t seed) {
  VOLTA_TRY(check_count(count, time));
  RandomWindows windows;
  windows.count_ = count;
  windows.mapped_ = std::move(tokens);
  windows.time_ = time;
  windows.seed_ = seed;
  windows.stream_ = kBatchStream;
  return windows;
}

Status RandomWindows::fill(std::int64_t step, std::int64_t micro, std::span<std::int32_t> ids,
                           std::span<std::int32_t> targets) const {
  const auto time = static_cast<std::size_t>(time_);
  const std::size_t batch = ids.size() / time;
  const auto places =
      static_cast<std::uint32_t>(std::min<std::int64_t>(count_ - time_, std::int64_t{1} << 31));
  const auto begin = [&](std::size_t row) -> std::size_t {
    const std::uint64_t element = static_cast<std::uint64_t>(micro) * batch + row;
    const Random4 bits = random_bits(seed_, stream_, static_cast<std::uint32_t>(step), element);
    // A longer file has more places than a draw has values: they are spread over it.
    const std::uint64_t place = bounded(bits.x, bits.y, places);
    const auto all = static_cast<std::uint64_t>(count_ - time_);
    return all == places ? place : place * (all / places);
  };
  if (mapped_ == nullptr) {
    fill_rows(std::span<const std::int32_t>(*tokens_), time, ids, targets, begin);
    return {};
  }
  fill_rows(*mapped_, time, ids, targets, begin);
  return mapped_->file().check_unchanged();
}

Result<ExampleRows> ExampleRows::create(std::vector<std::int32_t> rows, std::int64_t count,
                                        std::int64_t time, std::int64_t accumulate) {
  if (count < 1 || time < 1 || accumulate < 1 ||
      static_cast<std::int64_t>(rows.size()) != count * (time + 1)) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} ids are not {} examples of {} tokens",
                                                         rows.size(), count, time + 1));
  }
  ExampleRows source;
  source.rows_ = std::move(rows);
  source.count_ = count;
  source.time_ = time;
  source.accumulate_ = accumulate;
  return source;
}

Status ExampleRows::fill(std::int64_t step, std::int64_t micro, std::span<std::int32_t> ids,
                         std::span<std::int32_t> targets) const {
  const auto time = static_cast<std::size_t>(time_);
  const std::size_t batch = ids.size() / time;
  const auto count = static_cast<std::uint64_t>(count_);
  const auto first = static_cast<std::uint64_t>(step * accumulate_ + micro) * batch;
  fill_rows(std::span<const std::int32_t>(rows_), time, ids, targets, [&](std::size_t row) {
    return static_cast<std::size_t>((first + row) % count) * (time + 1);
  });
  return {};
}

std::shared_ptr<const LabelledRows> label_rows(std::span<const std::int32_t> rows,
                                               std::int64_t count, std::int64_t time) {
  auto labelled = std::make_shared<LabelledRows>();
  labelled->count = count;
  labelled->time = time;
  labelled->ids.resize(static_cast<std::size_t>(count * time));
  labelled->targets.resize(labelled->ids.size());
  fill_rows(rows, static_cast<std::size_t>(time), labelled->ids, labelled->targets,
            [&](std::size_t row) { return row * static_cast<std::size_t>(time + 1); });
  return labelled;
}

std::vector<std::uint32_t> shuffled(std::size_t count, std::uint64_t seed, std::uint32_t epoch) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  RandomSequence random(RandomKey{.seed = seed, .stream = kShuffleStream, .step = epoch});
  for (std::size_t left = count; left > 1; --left) {
    std::swap(order[left - 1], order[random.next_below(static_cast<std::uint32_t>(left))]);
  }
  return order;
}

Result<ShuffledRows> ShuffledRows::create(std::shared_ptr<const LabelledRows> rows,
                                          std::uint64_t seed, std::int64_t accumulate) {
  const bool fits = rows->count >= 1 && rows->count < (std::int64_t{1} << 32) && rows->time >= 1 &&
                    std::ssize(rows->ids) == rows->count * rows->time &&
                    rows->targets.size() == rows->ids.size() && accumulate >= 1;
  if (!fits) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} ids with {} targets are not {} rows of {} tokens", rows->ids.size(),
                            rows->targets.size(), rows->count, rows->time));
  }
  ShuffledRows source;
  source.rows_ = std::move(rows);
  source.seed_ = seed;
  source.accumulate_ = accumulate;
  return source;
}

Status ShuffledRows::fill(std::int64_t step, std::int64_t micro, std::span<std::int32_t> ids,
                          std::span<std::int32_t> targets) const {
  const auto time = static_cast<std::size_t>(rows_->time);
  const auto count = static_cast<std::uint64_t>(rows_->count);
  const std::size_t batch = ids.size() / time;
  const auto first = static_cast<std::uint64_t>(step * accumulate_ + micro) * batch;
  for (std::size_t row = 0; row < batch; ++row) {
    const std::uint64_t pass = (first + row) / count;
    if (pass_ != pass) {
      order_ = shuffled(count, seed_, static_cast<std::uint32_t>(pass));
      pass_ = pass;
    }
    const std::size_t from = order_[(first + row) % count] * time;
    std::copy_n(rows_->ids.begin() + static_cast<std::ptrdiff_t>(from), time,
                ids.begin() + static_cast<std::ptrdiff_t>(row * time));
    std::copy_n(rows_->targets.begin() + static_cast<std::ptrdiff_t>(from), time,
                targets.begin() + static_cast<std::ptrdiff_t>(row * time));
  }
  return {};
}

}  // namespace volta
