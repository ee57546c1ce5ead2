// Embedding of a quantised table: one row of blocks per id, decoded to floats. Limited by bytes.
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/quant.h"
#include "kernels/cuda/quant_format.cuh"

namespace volta::cuda {
namespace {

constexpr int kThreads = 256;

struct Table {
  const std::uint8_t* data;
  std::int64_t rows, columns;
  std::int64_t row_bytes;
  Quant quant;
  int block, block_bytes;
};

/// Some elements of the row of id number blockIdx.x, and so on: y[id, column].
template <typename T>
__global__ void __launch_bounds__(kThreads)
    look_up(Table table, const std::int32_t* ids, std::int64_t count, T* y, Fault fault) {
  for (std::int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    const std::int64_t id = ids[i];
    const bool inside = id >= 0 && id < table.rows;
    if (!inside && threadIdx.x == 0) fault.report(i);
    for (std::int64_t column = threadIdx.x; column < table.columns; column += kThreads) {
      float value = 0.0f;
      if (inside) {
        const std::uint8_t* block =
            table.data + id * table.row_bytes + column / table.block * table.block_bytes;
        value = decode_element(table.quant, block, static_cast<int>(column % table.block));
      }
      y[i * table.columns + column] = from_f32<T>(value);
    }
  }
}

}  // namespace

cudaError_t embedding_quantized(const Args& args, const Context& context) {
  const View &x = args.inputs[0], &ids = args.inputs[1], &y = args.outputs[0];
  const Encoding& encoding = x.encoding;
  const std::int64_t count = ids.shape.elements();
  Table table;
  table.data = x.as<const std::uint8_t>();
  table.rows = x.shape[0];
  table.columns = x.shape[1];
  table.row_bytes = encoding.blocks(table.columns) * encoding.block_bytes();
  table.quant = encoding.quant;
  table.block = encoding.block;
  table.block_bytes = static_cast<int>(encoding.block_bytes());
  if (count == 0 || table.columns == 0) return cudaSuccess;
  return with_float(y.dtype, [&](auto element) {
    using T = typename decltype(element)::type;
    look_up<T><<<blocks_for(count, 1), kThreads, 0, context.stream>>>(
        table, ids.as<const std::int32_t>(), count, y.as<T>(), Fault(context));
    return launch_error();
  });
}

}  // namespace volta::cuda
