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
  const std::span<const std::int32_t> all = *tokens_;
  for (std::size_t row = 0; row < batch; ++row) {
    const std::uint64_t element = static_cast<std::uint64_t>(micro) * batch + row;
    const Random4 bits = random_bits(seed_, stream_, static_cast<std::uint32_t>(step), element);
    const std::size_t begin = bounded(bits.x, bits.y, places);
    split_example(all.subspan(begin, time + 1), ids.subspan(row * time, time),
                  targets.subspan(row * time, time));
  }
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
  const std::span<const std::int32_t> all = rows_;
  for (std::size_t row = 0; row < batch; ++row) {
    const auto example = static_cast<std::size_t>((first + row) % count);
    split_example(all.subspan(example * (time + 1), time + 1), ids.subspan(row * time, time),
                  targets.subspan(row * time, time));
  }
  return {};
}

}  // namespace volta
