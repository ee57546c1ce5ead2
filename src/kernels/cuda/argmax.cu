// Argmax. Bound by bytes: x is read once.
#include <cstdint>

#include "kernels/cuda/ordered.cuh"
#include "kernels/cuda/rows.cuh"

namespace volta::cuda {
namespace {

template <typename T, int kTeam>
__global__ void __launch_bounds__(kBlockThreads<kTeam>)
    argmax(const T* all_x, std::int32_t* y, std::int64_t rows, std::int64_t n) {
  __shared__ unsigned long long shared[kTeam / kWarp];
  const std::int64_t row = team_row<kTeam>();
  if (row >= rows) return;
  const int rank = team_rank<kTeam>();
  const T* const x = all_x + row * n;
  // What fills the last vector up loses against the elements before it.
  const T nothing = from_f32<T>(__int_as_float(0xff800000));  // -infinity
  Largest largest;
  for_vectors<T, kTeam>(rank, n, [&](std::int64_t i) {
    const RowVector<T> from = load_vector(x, i, n, nothing);
#pragma unroll
    for (int j = 0; j < kVector<T>; ++j) {
      largest.add(to_f32(from.at[j]), static_cast<std::uint32_t>(i + j));
    }
  });
  largest.join<kTeam>(shared);
  if (rank == 0) y[row] = static_cast<std::int32_t>(largest.index);
}

}  // namespace

bool supports(const Argmax&, std::span<const TensorSpec>) { return true; }

std::int64_t workspace_bytes(const Argmax&, const ArgShapes&, const Context&) { return 0; }

cudaError_t run(const Argmax&, const Args& args, const Context& context) noexcept {
  const View& x = args.inputs[0];
  const std::int64_t rows = x.shape.rows(), columns = x.shape.columns();
  if (rows == 0) return cudaSuccess;
  return with_float(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto launch = [&](auto team) {
      constexpr int kTeam = decltype(team)::kThreads;
      argmax<T, kTeam><<<row_blocks<kTeam>(rows), kBlockThreads<kTeam>, 0, context.stream>>>(
          x.as<const T>(), args.outputs[0].as<std::int32_t>(), rows, columns);
      return launch_error();
    };
    if (columns <= kWarpColumns) return launch(Team<kWarp>());
    return launch(Team<kLongThreads>());
  });
}

}  // namespace volta::cuda
