#include "formats/non_finite.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "base/arithmetic.h"
#include "device/tensor_ops.h"
#include "tensor/weight_format.h"

namespace volta {
namespace {

// A block fits the first-level cache, and its counts fit an integer of the element's width.
constexpr std::size_t kBlockBytes = std::size_t{16} << 10;
constexpr std::int64_t kBlocksAtOnce = 64;  // Fewer blocks are not worth a second thread.

// A block of floats as bits. A magnitude equal to `exponent`, the mask of all exponent bits, is
// infinity; larger magnitudes are NaN.
template <typename Bits>
struct Block {
  static constexpr std::size_t kSize = kBlockBytes / sizeof(Bits);
  std::array<Bits, kSize> values{};
  std::size_t count = 0;
  Bits exponent = 0;

  Bits magnitude(std::size_t i) const {
    constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
    return static_cast<Bits>(values[i] & static_cast<Bits>(~kSign));
  }
  NonFinite scan() const {
    Bits nans = 0;
    Bits infinities = 0;
    for (std::size_t i = 0; i < count; ++i) {
      nans = static_cast<Bits>(nans + (magnitude(i) > exponent ? 1 : 0));
      infinities = static_cast<Bits>(infinities + (magnitude(i) == exponent ? 1 : 0));
    }
    NonFinite found{.nans = nans, .infinities = infinities};
    if (nans == 0 && infinities == 0) return found;
    found.first = 0;
    while (magnitude(static_cast<std::size_t>(found.first)) < exponent) ++found.first;
    return found;
  }
};

// `load(first, values)` fills values with the elements from index `first` on.
template <typename Bits, typename Load>
NonFinite count(std::int64_t elements, Bits exponent, ThreadPool& pool, const Load& load) {
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  constexpr auto kSize = static_cast<std::int64_t>(Block<Bits>::kSize);
  std::atomic<std::int64_t> nans = 0;
  std::atomic<std::int64_t> infinities = 0;
  std::atomic<std::int64_t> first = kNone;
  const std::int64_t blocks = ceil_div(elements, kSize);
  parallel_for(pool, 0, blocks, kBlocksAtOnce, [&](std::int64_t begin, std::int64_t end) {
    Block<Bits> block{.exponent = exponent};
    for (std::int64_t b = begin; b < end; ++b) {
      block.count = static_cast<std::size_t>(std::min(kSize, elements - b * kSize));
      load(b * kSize, std::span(block.values).first(block.count));
      const NonFinite found = block.scan();
      if (found.first < 0) continue;
      nans += found.nans;
      infinities += found.infinities;
      const std::int64_t place = b * kSize + found.first;
      std::int64_t known = first.load();
      while (place < known && !first.compare_exchange_weak(known, place)) {
      }
    }
  });
  return {nans, infinities, first == kNone ? -1 : first.load()};
}

template <typename Bits>
NonFinite count_bytes(std::span<const std::byte> bytes, Bits exponent, ThreadPool& pool) {
  const auto elements = static_cast<std::int64_t>(bytes.size() / sizeof(Bits));
  // The bytes are copied because the tensors in a file need not be aligned.
  return count(elements, exponent, pool, [&](std::int64_t first, std::span<Bits> values) {
    const auto part =
        bytes.subspan(static_cast<std::size_t>(first) * sizeof(Bits), values.size_bytes());
    std::ranges::copy(part, std::as_writable_bytes(values).begin());
  });
}

}  // namespace

void NonFinite::add(const NonFinite& part, std::int64_t begin) {
  nans += part.nans;
  infinities += part.infinities;
  if (first < 0 && part.first >= 0) first = begin + part.first;
}

NonFinite count_non_finite(std::span<const std::byte> bytes, DType dtype, ThreadPool& pool) {
  switch (dtype) {
    case DType::kF32:
      return count_bytes<std::uint32_t>(bytes, 0x7f800000u, pool);
    case DType::kBF16:
      return count_bytes<std::uint16_t>(bytes, 0x7f80u, pool);
    case DType::kF16:
      return count_bytes<std::uint16_t>(bytes, 0x7c00u, pool);
    default:
      return {};
  }
}

NonFinite count_non_finite(std::int64_t count, ThreadPool& pool,
                           FunctionRef<void(std::int64_t first, std::span<float> values)> read) {
  const auto load = [&](std::int64_t first, std::span<std::uint32_t> bits) {
    std::array<float, Block<std::uint32_t>::kSize> values{};
    const auto wanted = std::span(values).first(bits.size());
    read(first, wanted);
    std::ranges::copy(std::as_bytes(wanted), std::as_writable_bytes(bits).begin());
  };
  return volta::count<std::uint32_t>(count, 0x7f800000u, pool, load);
}

NonFinite count_non_finite_scales(std::span<const std::byte> bytes, const Encoding& encoding) {
  NonFinite found;
  const auto block_bytes = static_cast<std::size_t>(encoding.block_bytes());
  const FormatInfo& format = format_info(encoding.quant);
  const auto scale = static_cast<std::size_t>(format.scale_at);
  const std::size_t end = scale + (format.minimums ? 4 : 2);
  for (std::size_t block = 0; (block + 1) * block_bytes <= bytes.size(); ++block) {
    const auto stored = bytes.subspan(block * block_bytes, block_bytes);
    for (std::size_t place = scale; place < end; place += 2) {
      const unsigned magnitude = stored_u16(stored, place) & 0x7FFFu;
      if (magnitude < 0x7c00u) continue;
      ++(magnitude == 0x7c00u ? found.infinities : found.nans);
      if (found.first < 0) found.first = static_cast<std::int64_t>(block);
    }
  }
  return found;
}

Result<NonFinite> count_non_finite(Device& device, const Tensor& tensor, ThreadPool& pool,
                                   const Interruption& interrupted) {
  constexpr std::size_t kPiece = std::size_t{32} << 20;  // Bytes per interruption check.
  const DType dtype = tensor.spec().encoding.quantized() ? DType::kF32 : tensor.dtype();
  VOLTA_TRY(const Tensor plain, tensor_ops::as_spec(device, tensor, {dtype, tensor.shape()}));
  VOLTA_TRY(const Tensor host, plain.host_accessible() ? Result<Tensor>(plain) : plain.clone_to());
  VOLTA_TRY(const std::span<const std::byte> bytes, host.host_bytes());
  NonFinite found;
  for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
    if (interrupted && interrupted()) return fail(ErrorCode::kInterrupted, "interrupted");
    const auto piece = bytes.subspan(at, std::min(kPiece, bytes.size() - at));
    found.add(count_non_finite(piece, dtype, pool),
              static_cast<std::int64_t>(at) / dtype_size(dtype));
  }
  return found;
}

Status check_finite(const Transformer& model) {
  Device& device = *model.device();
  VOLTA_TRY(ThreadPool pool, ThreadPool::create(device.info().threads));
  const Interruption interrupted = [&device] { return device.interrupted(); };
  for (const auto& [name, weight] : model.weights()) {
    VOLTA_TRY(const NonFinite bad, count_non_finite(device, weight, pool, interrupted));
    if (bad.first < 0) continue;
    return fail(ErrorCode::kNonFinite,
                fmt::format("tensor '{}' holds {} NaN and {} infinities (volta verify lists all)",
                            name, bad.nans, bad.infinities));
  }
  return {};
}

}  // namespace volta
