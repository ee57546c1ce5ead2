// Rounds rows of activations to int8 with a kernel of its own, for products that do not do it
// themselves (quant_few.cu). Limited by bytes; small beside the product.
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/quant_round.cuh"
#include "kernels/cuda/quant_rows.cuh"

namespace volta::cuda {
namespace {

constexpr int kWarps = 8;

template <typename T>
__global__ void __launch_bounds__(kWarps* kWarp) round_rows(const T* x, QuantRows to) {
  const std::int64_t index =
      static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / static_cast<unsigned>(kWarp);
  if (index < to.m * to.blocks) round_block_of(x, index, to);
}

/// Elements of a row that share a scale, for a b of this encoding: those of b's block. With 4 bits,
/// blocks are joined to 128 or 64 elements if K allows.
std::int64_t row_block(const Encoding& b, std::int64_t k) {
  if (b.quant != Quant::kInt4) return b.block;
  const std::int64_t joined = k % 128 == 0 ? 128 : k % 64 == 0 ? 64 : 32;
  return joined % b.block == 0 ? joined : b.block;
}

/// Takes arrays one after the other, each beginning at a multiple of 256 bytes.
class Places {
 public:
  explicit Places(std::byte* memory) : memory_(memory) {}
  template <typename T>
  T* take(std::int64_t count) {
    // SAFETY: the memory holds all that is taken, of which quant_rows_bytes() is the sum.
    T* place = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + taken_);
    taken_ += round_up(count * static_cast<std::int64_t>(sizeof(T)), std::int64_t{256});
    return place;
  }
  std::int64_t taken() const { return taken_; }

 private:
  std::byte* memory_;
  std::int64_t taken_ = 0;
};

QuantRows place(const Encoding& b, std::int64_t m, std::int64_t k, Places& places) {
  QuantRows rows;
  rows.m = m;
  rows.k = k;
  rows.block = static_cast<int>(row_block(b, k));
  rows.blocks = ceil_div(k, static_cast<std::int64_t>(rows.block));
  rows.stride = rows.blocks * rows.block;
  const std::int64_t groups = rows.stride / kGroup;
  rows.q = places.take<std::int8_t>(m * rows.stride);
  rows.scale = places.take<float>(m * rows.blocks);
  rows.rests = places.take<std::uint32_t>(m * rows.blocks);
  rows.rest_q = places.take<std::int8_t>(m * rows.stride);
  rows.rest_scale = places.take<float>(m * groups);
  if (format_info(b.quant).minimums) {
    rows.less = places.take<float>(m * groups);
    rows.rest_less = places.take<float>(m * groups);
  }
  return rows;
}

}  // namespace

QuantRows place_quant_rows(const Encoding& b, std::int64_t m, std::int64_t k, std::byte* memory) {
  Places places(memory);
  return place(b, m, k, places);
}

std::int64_t quant_rows_bytes(const Encoding& b, std::int64_t m, std::int64_t k) {
  Places places(nullptr);
  place(b, m, k, places);
  return places.taken();
}

cudaError_t quantize_rows(DType type, const void* x, const QuantRows& to, const Context& context) {
  if (to.m == 0 || to.blocks == 0) return cudaSuccess;
  const unsigned grid = blocks_for(to.m * to.blocks, kWarps);
  return with_float(type, [&](auto element) {
    using T = typename decltype(element)::type;
    round_rows<T><<<grid, kWarps * kWarp, 0, context.stream>>>(static_cast<const T*>(x), to);
    return launch_error();
  });
}

}  // namespace volta::cuda
