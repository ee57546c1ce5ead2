#include "train/data.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/rng.h"

namespace volta {
namespace {

// Copies one example of time + 1 ids into its row of inputs and of targets.
void split_example(std::span<const std::int32_t> example, std::span<std::int32_t> ids,
                   std::span<std::int32_t> targets) {
  std::copy_n(example.begin(), ids.size(), ids.begin());
  std::copy_n(example.begin() + 1, targets.size(), targets.begin());
}

// Fills the rows of a batch with examples of time + 1 ids; `begin(row)` is where in `all` the
// example of a row begins.
template <typename Begin>
void fill_rows(std::span<const std::int32_t> all, std::size_t time, std::span<std::int32_t> ids,
               std::span<std::int32_t> targets, const Begin& begin) {
  for (std::size_t row = 0; row < ids.size() / time; ++row) {
    split_example(all.subspan(begin(row), time + 1), ids.subspan(row * time, time),
                  targets.subspan(row * time, time));
  }
}

}  // namespace

Result<RandomWindows> RandomWindows::create(std::shared_ptr<const std::vector<std::int32_t>> tokens,
                                            std::int64_t time, std::uint64_t seed,
                                            std::uint32_t stream) {
  if (static_cast<std::int64_t>(tokens->size()) <= time) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("the text has {} tokens; a context of {} needs at least {}. Use a longer "
                    "text or a shorter context",
                    tokens->size(), time, time + 1));
  }
  RandomWindows windows;
  windows.tokens_ = std::move(tokens);
  windows.time_ = time;
  windows.seed_ = seed;
  windows.stream_ = stream;
  return windows;
}

Status RandomWindows::fill(std::int64_t step, std::int64_t micro, std::span<std::int32_t> ids,
                           std::span<std::int32_t> targets) const {
  const auto time = static_cast<std::size_t>(time_);
  const std::size_t batch = ids.size() / time;
  const auto places = static_cast<std::uint32_t>(
      std::min<std::size_t>(tokens_->size() - time, std::size_t{1} << 31));
  fill_rows(*tokens_, time, ids, targets, [&](std::size_t row) -> std::size_t {
    const std::uint64_t element = static_cast<std::uint64_t>(micro) * batch + row;
    const Random4 bits = random_bits(seed_, stream_, static_cast<std::uint32_t>(step), element);
    return bounded(bits.x, bits.y, places);
  });
  return {};
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
  fill_rows(rows_, time, ids, targets, [&](std::size_t row) {
    return static_cast<std::size_t>((first + row) % count) * (time + 1);
  });
  return {};
}

}  // namespace volta
