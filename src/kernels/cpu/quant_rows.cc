// Where the parts of rows of small integers are in memory (quant_rows.h).
#include "kernels/cpu/quant_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/arithmetic.h"
#include "kernels/cpu/amx.h"

namespace volta::cpu {

std::int64_t row_block(const Encoding& b, std::int64_t k) {
  if (b.quant == Quant::kInt8) return b.block;
  const std::int64_t joined = k % 128 == 0 ? 128 : k % 64 == 0 ? 64 : 32;
  return joined % b.block == 0 ? joined : b.block;
}

std::int64_t offset_steps(const Encoding& b) {
  const std::int32_t shared = format_info(b.quant).scale_steps;
  return shared == 0 ? b.block : shared;
}

namespace {

/// Sizes that follow from b's encoding and K.
struct RowsLayout {
  std::int64_t block, blocks, stride, b_blocks, groups, rest_offsets;
};
RowsLayout rows_layout(const Encoding& b, std::int64_t k) {
  RowsLayout l{};
  l.block = row_block(b, k);
  l.blocks = ceil_div(k, l.block);
  // Rows that are a power of two apart would share a few sets of the cache.
  l.stride = round_up(l.blocks * l.block, QuantRows::kChunk) + QuantRows::kChunk;
  l.b_blocks = l.blocks * l.block / offset_steps(b);
  l.groups = l.blocks * l.block / kRowGroup;
  l.rest_offsets = l.blocks * l.block / std::min(kRowGroup, offset_steps(b));
  return l;
}

/// Takes arrays one after the other, each beginning on a cache line.
class Places {
 public:
  explicit Places(std::byte* memory) : memory_(memory) {}
  template <typename T>
  T* take(std::int64_t count) {
    const std::int64_t bytes = round_up(count * static_cast<std::int64_t>(sizeof(T)), 64);
    // SAFETY: the memory holds all that is taken, of which quant_rows_bytes() is the sum.
    T* place = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + taken_);
    taken_ += bytes;
    return place;
  }
  std::int64_t taken() const { return taken_; }

 private:
  std::byte* memory_;
  std::int64_t taken_ = 0;
};

QuantRows place(const RowsLayout& l, std::int64_t rows, bool tiles, Places& places) {
  const auto integers = [&](std::int64_t scales, std::int64_t offsets) {
    // Tiles of AMX read 16 rows at a time. They do not use what they read beyond the last one.
    auto* q = places.take<std::int8_t>(round_up(rows, kTileRows) * l.stride);
    auto* scale = places.take<float>(rows * scales);
    return IntegerRows{q, scale, places.take<std::int32_t>(rows * offsets), scales, offsets};
  };
  const IntegerRows whole = integers(l.blocks, l.b_blocks);
  const IntegerRows rest = integers(l.groups, l.rest_offsets);
  auto* rests = places.take<std::uint8_t>(rows * l.blocks);
  auto* wide = places.take<std::uint8_t>(rows);
  const std::int64_t chunk = tiles ? QuantRows::kTileChunk : QuantRows::kChunk;
  return {whole, rest, rests, wide, l.stride, l.blocks, l.block, chunk};
}

}  // namespace

std::int64_t quant_rows_bytes(const Encoding& b, std::int64_t rows, std::int64_t k) {
  Places places(nullptr);
  place(rows_layout(b, k), rows, false, places);
  return places.taken();
}

QuantRows place_quant_rows(const Encoding& b, std::int64_t rows, std::int64_t k, bool tiles,
                           std::byte* memory) {
  Places places(memory);
  return place(rows_layout(b, k), rows, tiles, places);
}

}  // namespace volta::cpu
