// Rope: rotates pairs of elements of each head by the angle of the row's position. Bound by bytes:
// x is read and y written once, and the table is in a cache. The output may be the memory of x: a
// thread reads both elements of a pair before it writes them. A position outside the table gives a
// row of zeros and is reported.
#include <cstdint>

#include "kernels/cuda/rotation.cuh"
#include "kernels/cuda/rows.cuh"

namespace volta::cuda {
namespace {

struct RopeCall {
  const void* x = nullptr;
  const std::int32_t* positions = nullptr;  // [period]
  const float* table = nullptr;             // [table_rows, rotary]
  void* y = nullptr;
  std::int64_t rows = 0, columns = 0, period = 0, table_rows = 0;
  std::int32_t heads = 0, head_dim = 0, rotary = 0;
  float sign = 1.0f;  // -1 rotates back.
  bool interleaved = false;
  Fault fault;
};

// The work of a row comes in units: `count` pairs each, of all rotated heads; then `count` elements
// each of what is copied, first the ends of the rotated heads, then the later heads.
struct Units {
  std::uint32_t head_pairs, head_ends, pairs, ends, later;

  __host__ __device__ Units(const RopeCall& call, int count)
      : head_pairs(static_cast<std::uint32_t>(call.rotary / 2 / count)),
        head_ends(static_cast<std::uint32_t>((call.head_dim - call.rotary) / count)),
        pairs(static_cast<std::uint32_t>(call.heads) * head_pairs),
        ends(static_cast<std::uint32_t>(call.heads) * head_ends),
        later(static_cast<std::uint32_t>((call.columns - std::int64_t{call.heads} * call.head_dim) /
                                         count)) {}
};

// kCount elements whose address is a multiple of all their bytes, or of 16: see counts_apply.
template <int kCount, typename T>
__device__ void load_whole(const T* from, float (&to)[kCount]) {
  constexpr int kPart = kCount < kVector<T> ? kCount : kVector<T>;
#pragma unroll
  for (int part = 0; part < kCount; part += kPart) {
    // SAFETY: the launcher chose a kCount that divides all lengths, and checked the addresses.
    const auto piece = *reinterpret_cast<const Vector<T, kPart>*>(from + part);
#pragma unroll
    for (int j = 0; j < kPart; ++j) to[part + j] = to_f32(piece.at[j]);
  }
}
template <int kCount, typename T>
__device__ void store_whole(T* to, const float (&from)[kCount]) {
  // SAFETY: as for load_whole; kCount elements of T are at most 16 bytes.
  *reinterpret_cast<Vector<T, kCount>*>(to) = narrow<T>(from);
}

// Rotates the pairs (i, i + half) and so on of a head, kCount of them.
template <int kCount, typename T>
__device__ void turn_halves(const RopeCall& call, const T* x, const float* angles, int i, T* y) {
  const int half = call.rotary / 2;
  float a[kCount], b[kCount], cosine[kCount], sine[kCount];
  load_whole(x + i, a);
  load_whole(x + half + i, b);
  load_whole(angles + i, cosine);
  load_whole(angles + half + i, sine);
#pragma unroll
  for (int j = 0; j < kCount; ++j) turn(cosine[j], call.sign * sine[j], a[j], b[j]);
  store_whole(y + i, a);
  store_whole(y + half + i, b);
}

// Rotates the pairs (2i, 2i + 1) and so on of a head, kCount of them.
template <int kCount, typename T>
__device__ void turn_neighbours(const RopeCall& call, const T* x, const float* angles, int i,
                                T* y) {
  float low[kCount], high[kCount], cosine[kCount], sine[kCount];
  load_whole(x + 2 * i, low);
  load_whole(x + 2 * i + kCount, high);
  load_whole(angles + i, cosine);
  load_whole(angles + call.rotary / 2 + i, sine);
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    float& a = 2 * j < kCount ? low[2 * j] : high[2 * j - kCount];
    float& b = 2 * j + 1 < kCount ? low[2 * j + 1] : high[2 * j + 1 - kCount];
    turn(cosine[j], call.sign * sine[j], a, b);
  }
  store_whole(y + 2 * i, low);
  store_whole(y + 2 * i + kCount, high);
}

// kCount divides all lengths of the units.
template <typename T, int kCount>
__global__ void rope(RopeCall call) {
  const std::int64_t row = grid_row();
  if (row >= call.rows) return;
  const std::int64_t place = row < call.period ? row : row % call.period;
  const std::int64_t position = call.positions[place];
  const T* const x = static_cast<const T*>(call.x) + row * call.columns;
  T* const y = static_cast<T*>(call.y) + row * call.columns;
  if (position < 0 || position >= call.table_rows) {
    if (grid_vector() == 0) call.fault.report(place);
    for (std::int64_t i = grid_vector(); i < call.columns; i += grid_stride()) y[i] = T(0.0f);
    return;
  }
  const float* const angles = call.table + position * call.rotary;
  const Units units(call, kCount);
  const std::int64_t count = units.pairs + (x == y ? 0 : units.ends + units.later);
  for (std::int64_t i = grid_vector(); i < count; i += grid_stride()) {
    // A row has less than 2^32 units, and 32-bit divisions are much faster.
    auto unit = static_cast<std::uint32_t>(i);
    std::int64_t from = 0;
    if (unit < units.pairs) {
      const std::int64_t head = std::int64_t{unit / units.head_pairs} * call.head_dim;
      const int pair = static_cast<int>(unit % units.head_pairs) * kCount;
      if (call.interleaved) {
        turn_neighbours<kCount>(call, x + head, angles, pair, y + head);
      } else {
        turn_halves<kCount>(call, x + head, angles, pair, y + head);
      }
      continue;
    }
    unit -= units.pairs;
    if (unit < units.ends) {
      from = std::int64_t{unit / units.head_ends} * call.head_dim + call.rotary +
             unit % units.head_ends * kCount;
    } else {
      from = std::int64_t{call.heads} * call.head_dim + std::int64_t{unit - units.ends} * kCount;
    }
    *reinterpret_cast<Vector<T, kCount>*>(y + from) =
        *reinterpret_cast<const Vector<T, kCount>*>(x + from);
  }
}

// Whether kCount elements can be read and written at once everywhere.
template <typename T, int kCount>
bool counts_apply(const RopeCall& call) {
  return call.rotary / 2 % kCount == 0 && call.head_dim % kCount == 0 &&
         call.columns % kCount == 0 && is_aligned(call.x, kCount * sizeof(T)) &&
         is_aligned(call.y, kCount * sizeof(T)) && is_aligned(call.table, 16);
}

template <typename T, int kCount>
cudaError_t launch(const RopeCall& call, cudaStream_t stream) {
  const Units units(call, kCount);
  const VectorGrid grid(call.rows, std::int64_t{units.pairs} + units.ends + units.later);
  rope<T, kCount><<<grid.blocks, grid.threads, 0, stream>>>(call);
  return launch_error();
}

}  // namespace

bool supports(const Rope&, std::span<const TensorSpec>) { return true; }

std::int64_t workspace_bytes(const Rope&, const ArgShapes&, const Context&) { return 0; }

cudaError_t run(const Rope& op, const Args& args, const Context& context) noexcept {
  const View& x = args.inputs[0];
  const View& table = args.inputs[2];
  RopeCall call;
  call.x = x.data;
  call.positions = args.inputs[1].as<const std::int32_t>();
  call.table = table.as<const float>();
  call.y = args.outputs[0].data;
  call.rows = x.shape.rows();
  call.columns = x.shape.columns();
  call.period = args.inputs[1].shape.elements();
  call.table_rows = table.shape[0];
  call.heads = op.heads;
  call.head_dim = op.head_dim;
  call.rotary = static_cast<std::int32_t>(table.shape[1]);  // At most head_dim.
  call.sign = op.inverse ? -1.0f : 1.0f;
  call.interleaved = op.interleaved;
  call.fault = Fault(context);
  if (call.rows == 0) return cudaSuccess;
  return with_float(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if (counts_apply<T, kVector<T>>(call)) return launch<T, kVector<T>>(call, context.stream);
    return launch<T, 1>(call, context.stream);
  });
}

}  // namespace volta::cuda
