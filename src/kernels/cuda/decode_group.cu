// Finds and runs groups of calls (decode_group.h): products of the same rows, a gated unit
// with its two products, and rotations with what appends to the cache.
//
// A group runs its calls at the same time, so a result must not lie where another call of the group
// reads something else.
#include <algorithm>
#include <cstdint>
#include <variant>

#include "kernels/cuda/decode_group.h"
#include "kernels/cuda/gemm_stream.h"
#include "kernels/cuda/quant.h"
#include "kernels/cuda/quant_product.cuh"
#include "kernels/cuda/rope_append.h"

namespace volta::cuda {
namespace {

bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  // SAFETY: addresses are compared as numbers only, here and below.
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a);
  const auto b_begin = reinterpret_cast<std::uintptr_t>(b);
  return a_begin < b_begin + b_bytes && b_begin < a_begin + a_bytes;
}
bool overlap(const View& a, const View& b) {
  return overlap(a.data, static_cast<std::size_t>(a.bytes()), b.data,
                 static_cast<std::size_t>(b.bytes()));
}
bool overlap(std::span<const std::byte> a, const View& b) {
  return overlap(a.data(), a.size(), b.data, static_cast<std::size_t>(b.bytes()));
}
bool same_place(const View& a, const View& b) { return a.data == b.data && a.bytes() == b.bytes(); }

template <typename T>
const T* get(const DecodeCall& call) {
  return std::get_if<T>(call.op);
}

// Whether each product may write while the others read. A residual may be the output itself.
bool independent(std::span<const DecodeCall> products) {
  for (const DecodeCall& writer : products) {
    const View& c = writer.args.outputs[0];
    for (const DecodeCall& reader : products) {
      const bool own = &reader == &writer;
      if (!own && overlap(c, reader.args.outputs[0])) return false;
      for (const View& input : reader.args.inputs) {
        if (overlap(c, input) && !(own && same_place(c, input))) return false;
      }
    }
  }
  return true;
}

// The first products of `calls` that can share a launch.
std::size_t streams_of(std::span<const DecodeCall> calls, const Context& context,
                       GemmStreams& streams) {
  std::size_t count = 0;
  while (count < calls.size() && count < static_cast<std::size_t>(kMostStreams)) {
    const MatMul* const product = get<MatMul>(calls[count]);
    GemmStreams longer = streams;
    if (product == nullptr ||
        !add_stream(*product, calls[count].args, is_steady(calls[count].steady_inputs, 1),
                    longer) ||
        !gemm_streams_apply(longer, context) || !independent(calls.first(count + 1))) {
      break;
    }
    streams = longer;
    ++count;
  }
  return count;
}

bool plain(const GemmOutput& out, DType type) {
  return out.bias == nullptr && out.residual == nullptr && out.activation == Activation::kNone &&
         out.type == type;
}

// Adds a gated unit of two products.
bool add_gate(const DecodeCall& gate, const DecodeCall& up, const DecodeCall& unit,
              GemmStreams& streams) {
  const GatedUnit* const op = get<GatedUnit>(unit);
  const View& y = unit.args.outputs[0];
  const DType type = streams.a.type;
  if (op == nullptr || y.dtype != type || !plain(streams.out[0], type) ||
      !plain(streams.out[1], type) || streams.out[0].n != streams.out[1].n) {
    return false;
  }
  const View& c0 = gate.args.outputs[0];
  const View& c1 = up.args.outputs[0];
  if (!same_place(unit.args.inputs[0], c0) || !same_place(unit.args.inputs[1], c1)) return false;
  const auto apart = [&](const View& view) { return !overlap(y, view); };
  if (!std::ranges::all_of(gate.args.inputs, apart) ||
      !std::ranges::all_of(up.args.inputs, apart) || (!apart(c0) && !same_place(y, c0)) ||
      (!apart(c1) && !same_place(y, c1))) {
    return false;
  }
  streams.gated = streams.out[0];
  streams.gated.c = y.data;
  streams.gated.aligned = streams.out[0].aligned && streams.out[1].aligned &&
                          reinterpret_cast<std::uintptr_t>(y.data) % 8 == 0;
  streams.activation = op->activation;
  return true;
}

// Whether the calls begin with two products and their gated unit; if so, `streams` is this group.
bool gated_group(std::span<const DecodeCall> calls, const Context& context, GemmStreams& streams) {
  if (calls.size() < 3 || get<GatedUnit>(calls[2]) == nullptr) return false;
  return streams_of(calls.first(2), context, streams) == 2 &&
         add_gate(calls[0], calls[1], calls[2], streams) && gemm_streams_apply(streams, context);
}

// Whether the workspace of the last product may be used while the others run. It may lie where an
// input of an earlier product was.
bool last_workspace_free(std::span<const DecodeCall> products) {
  const std::span<const std::byte> workspace = products.back().args.workspace;
  return std::ranges::none_of(products.first(products.size() - 1), [&](const DecodeCall& call) {
    const auto used = [&](const View& view) { return overlap(workspace, view); };
    return std::ranges::any_of(call.args.inputs, used) ||
           std::ranges::any_of(call.args.outputs, used);
  });
}

// The first products with small integers that can share a launch. The rounded rows lie in the
// workspace of the last one.
std::size_t quantized_of(std::span<const DecodeCall> calls, QuantProducts& products) {
  std::size_t count = 0;
  while (count < calls.size()) {
    const MatMul* const product = get<MatMul>(calls[count]);
    QuantProducts more = products;
    if (product == nullptr ||
        !add_quantized(*product, calls[count].args, is_steady(calls[count].steady_inputs, 1),
                       more) ||
        !independent(calls.first(count + 1)) || !last_workspace_free(calls.first(count + 1))) {
      break;
    }
    products = more;
    ++count;
  }
  return count;
}

bool rope_group(std::span<const DecodeCall> calls, RopeAppend& group) {
  if (calls.size() < 3) return false;
  group = {.rope_q = get<Rope>(calls[0]),
           .rope_k = get<Rope>(calls[1]),
           .append = get<KvAppend>(calls[2]),
           .q = calls[0].args,
           .k = calls[1].args,
           .kv = calls[2].args,
           .q_call = calls[0].number,
           .k_call = calls[1].number,
           .kv_call = calls[2].number};
  if (group.rope_q == nullptr || group.rope_k == nullptr || group.append == nullptr) return false;
  const View& q = group.q.inputs[0];
  const View& k = group.k.inputs[0];
  const View& v = group.kv.inputs[1];
  const View& turned_q = group.q.outputs[0];
  const View& turned_k = group.k.outputs[0];
  if (group.append->shape.packed || overlap(turned_q, k) || overlap(turned_q, v) ||
      overlap(turned_k, q) || overlap(turned_k, v) || overlap(turned_q, turned_k) ||
      (overlap(turned_q, q) && !same_place(turned_q, q)) ||
      (overlap(turned_k, k) && !same_place(turned_k, k))) {
    return false;
  }
  return rope_append_applies(group);
}

}  // namespace

std::size_t decode_group_size(std::span<const DecodeCall> calls, const Context& context) {
  RopeAppend rope;
  if (rope_group(calls, rope)) return 3;
  GemmStreams gated, streams;
  if (gated_group(calls, context, gated)) return 3;
  QuantProducts products;
  return std::max(
      {streams_of(calls, context, streams), quantized_of(calls, products), std::size_t{1}});
}

cudaError_t run_decode_group(std::span<const DecodeCall> group, const Context& context) {
  RopeAppend rope;
  if (rope_group(group, rope)) return rope_append(rope, context);
  GemmStreams gated, streams;
  if (gated_group(group, context, gated)) return gemm_streams(gated, context);
  if (streams_of(group, context, streams) == group.size()) return gemm_streams(streams, context);
  QuantProducts products;
  if (quantized_of(group, products) != group.size()) return cudaErrorInvalidValue;
  return matmul_quantized(products, context);
}

}  // namespace volta::cuda
