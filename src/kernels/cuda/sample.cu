// Sample: from logits to tokens, in three kernels. In the first one a block reads a part of a row
// of logits, and is bound by bytes; it also writes the rows that are not greedy to the workspace as
// f32. In the others a block has a row. The second one joins what was found in the parts, in order,
// and draws the token; the third one, if wanted, finds the likeliest tokens. They are bound by the
// latency of a handful of passes over one row; of a greedy row only the parts are read.
//
// Weights are summed as integers (multiples of a power of two), whose sums do not depend on their
// order, so that counts and sums of many tokens can be taken with atomics. The filters look for a
// border: the last token that stays, in the order of likelihood. It is found digit by digit in
// histograms over the tokens, as a radix sort finds it, but only the digit's bin in which the
// border lies is looked at again, until few candidates are left.
#include <cstdint>

#include "base/rng.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ordered.cuh"
#include "kernels/cuda/rows.cuh"

namespace volta::cuda {
namespace {

// The stream of Sample in the Philox counter: no op of a graph has it.
constexpr std::uint32_t kSampleStream = 0xFFFFFFFFu;

constexpr int kThreads = 1024;
constexpr int kBinBits = 11;
constexpr int kBins = 1 << kBinBits;
static_assert(kBins == 2 * kThreads);
constexpr int kCandidates = 512;
static_assert(64 - 5 * kBinBits == 9 && kCandidates == 1 << 9);  // See Border.

using Word = unsigned long long;

// A part of a row in the first kernel; its length does not depend on the number of rows.
constexpr int kPartThreads = 256;
constexpr std::int64_t kPartElements = 2048;

// What the first kernel finds out about a part: the sum of e^(logit - around), and the likeliest
// token.
struct Part {
  ExpSum sum;
  Largest largest;
};

// What is known about a row.
struct Row {
  bool skipped;     // It draws nothing, and all is said.
  bool drawn;       // The second kernel draws from it.
  float likeliest;  // The largest logit with penalties,
  float largest;    // and without.
  float lse;
};

struct SampleCall {
  FloatRow logits;  // [rows, n]
  const float* params = nullptr;
  const std::int64_t* rng = nullptr;
  std::int32_t* counts = nullptr;
  const std::int32_t* sequence = nullptr;
  std::int32_t* tokens = nullptr;
  float* logprobs = nullptr;
  std::int32_t* top_tokens = nullptr;
  float* top_logprobs = nullptr;
  float* values = nullptr;  // [rows, stride] of the workspace
  Row* results = nullptr;   // [rows] of the workspace
  Part* parts = nullptr;    // [rows, parts_of_row] of the workspace
  std::int64_t parts_of_row = 0;
  std::int64_t stride = 0, n = 0, sequences = 0;
  std::int64_t top = 0;
  float scale = 1.0f;  // Of the integers that stand for weights.
  Fault fault;

  // The counts of the prompt of a row's sequence; those of the output are n behind.
  __device__ std::int32_t* prompt_counts(std::int64_t row) const {
    return counts + std::int64_t{sequence[row]} * 2 * n;
  }
};

// A row of Sample's `params`.
enum Param { kTemperature, kTopK, kTopP, kMinP, kRepetition, kFrequency, kPresence };

// The penalties of a row.
struct Penalties {
  float repetition, frequency, presence;

  // Every operation is rounded by itself, as on the CPU.
  __device__ float penalise(float x, std::int64_t token, const std::int32_t* prompt,
                            const std::int32_t* output) const {
    if (repetition != 1.0f && (prompt[token] > 0 || output[token] > 0)) {
      x = x > 0.0f ? __fdiv_rn(x, repetition) : __fmul_rn(x, repetition);
    }
    if (frequency != 0.0f || presence != 0.0f) {
      const std::int32_t count = output[token];
      if (count > 0) {
        x = __fsub_rn(x, __fadd_rn(__fmul_rn(frequency, static_cast<float>(count)), presence));
      }
    }
    return x;
  }
};

struct Shared {
  std::uint32_t count[kBins];  // Tokens of a bin,
  std::uint32_t low[kBins];    // and the words of the sum of their weights.
  std::uint32_t high[kBins];
  Word candidates[kCandidates];
  Word weights[kCandidates];
  Word words[kThreads / kWarp];
  float floats[kThreads / kWarp];
  int slots;            // Candidates so far.
  int bin;              // The bin with the border; -1 if there is none,
  Word before, in_bin;  // the sum before it, and the number of its tokens.
  Word border;
  std::int64_t token;
};

// The sum of x over the threads before this one; the sum over all of them is put into `total`.
__device__ Word sum_before(Word x, Word* shared, Word& total) {
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  Word sum = x;
#pragma unroll
  for (unsigned distance = 1; distance < kWarp; distance *= 2) {
    const Word other = __shfl_up_sync(kAllLanes, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane == kWarp - 1) shared[warp] = sum;
  __syncthreads();
  Word before = sum - x;
  total = 0;
#pragma unroll 4
  for (unsigned i = 0; i < kThreads / kWarp; ++i) {
    if (i < warp) before += shared[i];
    total += shared[i];
  }
  __syncthreads();
  return before;
}

// The place of a token in the order of likelihood: smaller for a likelier one, and for the first of
// equally likely ones. No two tokens have the same.
__device__ Word place_of(float value, std::int64_t token) {
  return static_cast<Word>(0xffffffffu - ordered_bits(value)) << 32 |
         static_cast<std::uint32_t>(token);
}

// Finds the border of the smallest set of likeliest tokens whose sum (of ones, or of weights) is at
// least some number: the place of its last token.
struct Border {
  const float* values;
  std::int64_t n;
  float largest;  // Of the values.
  bool by_weight;
  float scale;  // Of weights.
  Word limit;   // Tokens behind this place do not exist.
  Shared& shared;

  // The tokens that are still looked at: in this bin of the first digit, and with this beginning of
  // their places.
  int level = 0;
  int first_bin = 0;
  Word beginning = 0;

  // The first digit divides the values evenly, because the first bits of most floats are the same.
  __device__ int bin_of(float value) const {
    return static_cast<int>(fminf((largest - value) * 64.0f, static_cast<float>(kBins - 1)));
  }
  // The later digits are those of the place, from the highest one.
  __device__ int shift_of(int its_level) const { return 64 - its_level * kBinBits; }

  __device__ bool matches(float value, Word place) const {
    if (place > limit) return false;
    if (level > 0 && bin_of(value) != first_bin) return false;
    return level < 2 || place >> shift_of(level - 1) == beginning;
  }
  __device__ Word weight_of(float value) const {
    return by_weight ? __float2ull_rz(expf(value) * scale) : 1;
  }

  // Fills the bins of this level.
  __device__ void count() const {
    for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kThreads) {
      shared.count[i] = shared.low[i] = shared.high[i] = 0;
    }
    __syncthreads();
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
      const float value = values[i];
      const Word place = place_of(value, i);
      if (!matches(value, place)) continue;
      const int bin =
          level == 0 ? bin_of(value) : static_cast<int>(place >> shift_of(level) & (kBins - 1));
      atomicAdd(&shared.count[bin], 1u);
      if (!by_weight) continue;
      const Word weight = weight_of(value);
      const auto low = static_cast<std::uint32_t>(weight);
      auto high = static_cast<std::uint32_t>(weight >> 32);
      if (low != 0 && atomicAdd(&shared.low[bin], low) > 0xffffffffu - low) ++high;  // It carries.
      if (high != 0) atomicAdd(&shared.high[bin], high);
    }
    __syncthreads();
  }
  __device__ Word sum_of_bin(int bin) const {
    if (!by_weight) return shared.count[bin];
    return static_cast<Word>(shared.high[bin]) * 0x100000000ull + shared.low[bin];
  }

  // Looks for the bin in which the sum, which is `before` at its beginning, reaches `wanted`. On
  // the first level `wanted` is a share of the sum of all weights.
  __device__ void find_bin(Word before, double& wanted) const {
    const int bin = 2 * static_cast<int>(threadIdx.x);
    const Word sums[2] = {sum_of_bin(bin), sum_of_bin(bin + 1)};
    if (threadIdx.x == 0) shared.bin = -1;
    Word total = 0;
    before += sum_before(sums[0] + sums[1], shared.words, total);
    // The likeliest token stays in any case.
    if (level == 0 && by_weight) wanted = fmax(wanted * static_cast<double>(total), 1.0);
    for (int i = 0; i < 2; ++i) {
      const Word after = before + sums[i];
      if (static_cast<double>(before) < wanted && static_cast<double>(after) >= wanted) {
        shared.bin = bin + i;
        shared.before = before;
        shared.in_bin = shared.count[bin + i];
      }
      before = after;
    }
    __syncthreads();
  }

  // Looks at each of the tokens that are left; there are at most kCandidates.
  __device__ Word find_token(Word before, double wanted) const {
    if (threadIdx.x == 0) {
      shared.slots = 0;
      shared.border = limit;
    }
    __syncthreads();
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
      const float value = values[i];
      const Word place = place_of(value, i);
      if (!matches(value, place)) continue;
      const int slot = atomicAdd(&shared.slots, 1);
      shared.candidates[slot] = place;
      shared.weights[slot] = weight_of(value);
    }
    __syncthreads();
    const int own = static_cast<int>(threadIdx.x);
    if (own < shared.slots) {
      for (int i = 0; i < shared.slots; ++i) {
        if (shared.candidates[i] < shared.candidates[own]) before += shared.weights[i];
      }
      const Word after = before + shared.weights[own];
      if (static_cast<double>(before) < wanted && static_cast<double>(after) >= wanted) {
        shared.border = shared.candidates[own];
      }
    }
    __syncthreads();
    const Word border = shared.border;
    __syncthreads();
    return border;
  }

  // `wanted` is a number of tokens, or the share of the sum of all weights. All threads call it.
  __device__ Word find(double wanted) {
    Word before = 0;
    for (level = 0;;) {
      count();
      find_bin(before, wanted);
      const int bin = shared.bin;
      const Word in_bin = shared.in_bin;
      before = bin < 0 ? 0 : shared.before;
      __syncthreads();
      if (bin < 0) return limit;  // The sum is not reached: all stay.
      if (level == 0) {
        first_bin = bin;
      } else {
        beginning = beginning << kBinBits | static_cast<Word>(bin);
      }
      ++level;
      // After five digits of the place at most 2^9 tokens have the same beginning.
      if (in_bin <= kCandidates) return find_token(before, wanted);
    }
  }
};

// The place of the last token that top-k and top-p let stay.
__device__ Word filter(const SampleCall& call, std::int64_t row, const float* values,
                       Shared& shared) {
  const float* const params = call.params + row * kSampleParams;
  Word last = ~Word{0};
  for (int turn = 0; turn < 2; ++turn) {  // First top-k, then top-p.
    const bool by_weight = turn == 1;
    const float wanted = params[by_weight ? kTopP : kTopK];
    const bool on =
        by_weight ? wanted < 1.0f : wanted >= 1.0f && wanted < static_cast<float>(call.n);
    if (!on) continue;
    Border border{values, call.n, 0.0f, by_weight, call.scale, last, shared};
    last = border.find(by_weight ? wanted : truncf(wanted));
  }
  return last;
}

// Draws a token by the cumulative weights of those that stay, in the order of the tokens. Each warp
// adds up a part of the row; the part with the drawn token is then searched by all.
__device__ std::int64_t draw(const SampleCall& call, std::int64_t row, const float* values,
                             Word last, Shared& shared) {
  const std::int64_t* const rng = call.rng + row * 2;
  const float min_p = call.params[row * kSampleParams + kMinP];
  const float least = 1.0f < min_p ? 1.0f : min_p;  // The largest weight is 1.
  const auto weight_of = [&](std::int64_t i) -> Word {
    const float value = values[i];
    if (place_of(value, i) > last) return 0;
    const float weight = expf(value);
    return weight < least ? 0 : __float2ull_rz(weight * call.scale);
  };
  constexpr int kWarps = kThreads / kWarp;
  const std::int64_t length = ceil_div(call.n, std::int64_t{kWarps});
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t own_begin = min(call.n, warp * length);
  const std::int64_t own_end = min(call.n, own_begin + length);
  Word sum = 0;
  for (std::int64_t i = own_begin + threadIdx.x % kWarp; i < own_end; i += kWarp) {
    sum += weight_of(i);
  }
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  }
  if (threadIdx.x % kWarp == 0) shared.words[warp] = sum;
  if (threadIdx.x == 0) shared.token = 0;
  __syncthreads();
  Word total = 0;
#pragma unroll 4
  for (int i = 0; i < kWarps; ++i) total += shared.words[i];
  // uniform_double has 53 bits: the whole part of uniform * total, which is below total.
  const Random4 bits = random_bits(static_cast<std::uint64_t>(rng[0]), kSampleStream,
                                   static_cast<std::uint32_t>(rng[1]), 0);
  const Word uniform = (static_cast<Word>(bits.x) << 32 | bits.y) >> 11;
  const Word target = __umul64hi(uniform, total) << 11 | uniform * total >> 53;
  Word before = 0;
  int part = 0;
  while (part < kWarps - 1 && before + shared.words[part] <= target) before += shared.words[part++];
  __syncthreads();

  const std::int64_t end = min(call.n, (part + 1) * length);
  for (std::int64_t begin = part * length; begin < end; begin += kThreads) {
    const std::int64_t i = begin + threadIdx.x;
    const Word weight = i < end ? weight_of(i) : 0;
    Word in_tile = 0;
    const Word to_here = before + sum_before(weight, shared.words, in_tile);
    if (to_here <= target && target < to_here + weight) shared.token = i;
    before += in_tile;
    if (target < before) break;
  }
  __syncthreads();
  return shared.token;
}

// Counts a row's token and stores it. One thread calls it.
__device__ void store_token(const SampleCall& call, std::int64_t row, std::int64_t token,
                            float lse) {
  ++call.prompt_counts(row)[call.n + token];
  call.tokens[row] = static_cast<std::int32_t>(token);
  call.logprobs[row] = call.logits.at(row * call.n + token) - lse;
}

// A row that draws nothing.
__device__ void skip_row(const SampleCall& call, std::int64_t row, bool bad) {
  if (threadIdx.x == 0) {
    if (bad) call.fault.report(row);
    call.tokens[row] = -1;
    call.logprobs[row] = 0.0f;
    call.results[row] = {.skipped = true};
  }
  for (std::int64_t i = threadIdx.x; i < call.top; i += kPartThreads) {
    call.top_tokens[row * call.top + i] = -1;
    call.top_logprobs[row * call.top + i] = 0.0f;
  }
}

__device__ bool is_greedy(float temperature) {
  return !(temperature > 0.0f) || !isfinite(temperature);
}

// Applies the penalties to a part of a row, finds its largest logits and its part of the softmax's
// denominator, and writes it to the workspace if the row is not greedy.
template <typename T>
__global__ void __launch_bounds__(kPartThreads) read_parts(SampleCall call) {
  __shared__ float floats[kPartThreads / kWarp];
  __shared__ Word words[kPartThreads / kWarp];
  let_next_begin();
  wait_for_earlier();
  const std::int64_t row = blockIdx.x / call.parts_of_row;
  const std::int64_t part = blockIdx.x % call.parts_of_row;
  const float* const params = call.params + row * kSampleParams;
  const float temperature = params[kTemperature];
  const bool known = call.sequence[row] >= 0 && call.sequence[row] < call.sequences;
  if (temperature < 0.0f || !known) {
    if (part == 0) skip_row(call, row, temperature >= 0.0f);
    return;
  }
  if (part == 0 && threadIdx.x == 0) call.results[row].skipped = false;

  const std::int64_t begin = part * kPartElements;
  const std::int64_t n = min(call.n, begin + kPartElements);
  const T* const logits = static_cast<const T*>(call.logits.data) + row * call.n;
  float* const values = call.values + row * call.stride;
  const std::int32_t* const prompt = call.prompt_counts(row);
  const Penalties penalties = {params[kRepetition], params[kFrequency], params[kPresence]};
  const bool greedy = is_greedy(temperature);
  const T nothing = from_f32<T>(__int_as_float(0xff800000));  // -infinity
  Part found;
  for (std::int64_t i = begin + std::int64_t{threadIdx.x} * kVector<T>; i < n;
       i += kPartThreads * kVector<T>) {
    float x[kVector<T>];
    widen(load_vector(logits, i, call.n, nothing), x);
    found.sum.add(x);
#pragma unroll
    for (int j = 0; j < kVector<T>; ++j) {
      if (i + j >= n) break;
      x[j] = penalties.penalise(x[j], i + j, prompt, prompt + call.n);
      found.largest.add(x[j], static_cast<std::uint32_t>(i + j));
      if (!greedy) values[i + j] = x[j];
    }
  }
  found.sum.join<kPartThreads>(floats);
  found.largest.join<kPartThreads>(words);
  if (threadIdx.x == 0) call.parts[row * call.parts_of_row + part] = found;
}

// Joins the parts of a row.
__device__ Row join_parts(const SampleCall& call, std::int64_t row, Shared& shared) {
  Part all;
  for (std::int64_t i = threadIdx.x; i < call.parts_of_row; i += kThreads) {
    const Part part = call.parts[row * call.parts_of_row + i];
    all.sum.add(part.sum);
    all.largest.add(part.largest);
  }
  all.sum.join<kThreads>(shared.floats);
  all.largest.join<kThreads>(shared.words);
  const float temperature = call.params[row * kSampleParams + kTemperature];
  Row result;
  result.skipped = false;
  result.likeliest = from_ordered_bits(all.largest.bits);
  result.largest = all.sum.around;
  result.lse = all.sum.around + logf(all.sum.sum);
  // Logits without a finite maximum have no softmax; then the row's NaN or infinity is the result.
  // The same holds for logits of minus infinity at an infinite temperature.
  result.drawn = !is_greedy(temperature) && isfinite(result.likeliest);
  if (threadIdx.x == 0) {
    call.results[row] = result;
    if (!result.drawn) store_token(call, row, all.largest.index, result.lse);
  }
  return result;
}

__global__ void __launch_bounds__(kThreads) draw_tokens(SampleCall call) {
  __shared__ Shared shared;
  let_next_begin();
  wait_for_earlier();
  const std::int64_t row = blockIdx.x;
  if (call.results[row].skipped) return;
  const Row result = join_parts(call, row, shared);
  if (!result.drawn) return;
  float* const values = call.values + row * call.stride;
  const float temperature = call.params[row * kSampleParams + kTemperature];
  // Subtracting first keeps the values finite for a tiny temperature.
  for (std::int64_t i = threadIdx.x; i < call.n; i += kThreads) {
    values[i] = __fdiv_rn(__fsub_rn(values[i], result.likeliest), temperature);
  }
  __syncthreads();
  const Word last = filter(call, row, values, shared);
  const std::int64_t token = draw(call, row, values, last, shared);
  if (threadIdx.x == 0) store_token(call, row, token, result.lse);
}

// The likeliest tokens by their logits, and the logits minus the log-sum-exp.
__global__ void __launch_bounds__(kThreads) find_top(SampleCall call) {
  __shared__ Shared shared;
  let_next_begin();
  wait_for_earlier();
  const std::int64_t row = blockIdx.x;
  const Row result = call.results[row];
  if (result.skipped) return;
  std::int32_t* const tokens = call.top_tokens + row * call.top;
  float* const logprobs = call.top_logprobs + row * call.top;
  if (!isfinite(result.lse)) {  // NaN cannot be sorted.
    for (std::int64_t i = threadIdx.x; i < call.top; i += kThreads) {
      tokens[i] = -1;
      logprobs[i] = result.lse;
    }
    return;
  }
  float* const values = call.values + row * call.stride;
  for (std::int64_t i = threadIdx.x; i < call.n; i += kThreads) {
    values[i] = call.logits.at(row * call.n + i);
  }
  __syncthreads();
  Word previous = 0;
  for (std::int64_t done = 0; done < call.top; done += kCandidates) {
    const std::int64_t end = min(call.top, done + kCandidates);
    Border border{values, call.n, result.largest, false, call.scale, ~Word{0}, shared};
    const Word last = border.find(static_cast<double>(end));
    if (threadIdx.x == 0) shared.slots = 0;
    __syncthreads();
    for (std::int64_t i = threadIdx.x; i < call.n; i += kThreads) {
      const Word place = place_of(values[i], i);
      if (place > last || (done > 0 && place <= previous)) continue;
      shared.candidates[atomicAdd(&shared.slots, 1)] = place;
    }
    __syncthreads();
    const int own = static_cast<int>(threadIdx.x);
    if (own < shared.slots) {
      const Word place = shared.candidates[own];
      std::int64_t rank = done;
      for (int i = 0; i < shared.slots; ++i) rank += shared.candidates[i] < place ? 1 : 0;
      const auto token = static_cast<std::uint32_t>(place);
      tokens[rank] = static_cast<std::int32_t>(token);
      logprobs[rank] = values[token] - result.lse;
    }
    __syncthreads();
    previous = last;
  }
}

// Floats of the workspace for a row of n logits.
std::int64_t row_stride(std::int64_t n) { return round_up(n, std::int64_t{64}); }

std::int64_t parts_of_row(std::int64_t n) { return ceil_div(n, kPartElements); }

// The largest power of two of which the sum of n weights of 1 is below 2^63.
float weight_scale(std::int64_t n) {
  float scale = 0x1p62f;
  for (std::int64_t tokens = 1; tokens < n; tokens *= 2) scale *= 0.5f;
  return scale;
}

}  // namespace

bool supports(const Sample&, std::span<const TensorSpec>) { return true; }

std::int64_t workspace_bytes(const Sample&, const ArgShapes& shapes, const Context&) {
  const Shape& logits = shapes.inputs[0].shape;
  const std::int64_t row_bytes = row_stride(logits[1]) * std::int64_t{sizeof(float)};
  const std::int64_t part_bytes = parts_of_row(logits[1]) * std::int64_t{sizeof(Part)};
  return logits[0] * (row_bytes + part_bytes + std::int64_t{sizeof(Row)});
}

cudaError_t run(const Sample& op, const Args& args, const Context& context) noexcept {
  const View& logits = args.inputs[0];
  const std::int64_t rows = logits.shape[0], n = logits.shape[1];
  if (rows == 0) return cudaSuccess;
  SampleCall call;
  call.logits = FloatRow(logits);
  call.params = args.inputs[1].as<const float>();
  call.rng = args.inputs[2].as<const std::int64_t>();
  call.counts = args.inputs[3].as<std::int32_t>();
  call.sequence = args.inputs[4].as<const std::int32_t>();
  call.tokens = args.outputs[0].as<std::int32_t>();
  call.logprobs = args.outputs[1].as<float>();
  if (n == 0) {  // Nothing to choose from: token 0 with logprob 0.
    const auto bytes = static_cast<std::size_t>(rows) * 4;
    const cudaError_t error = cudaMemsetAsync(call.tokens, 0, bytes, context.stream);
    if (error != cudaSuccess) return error;
    return cudaMemsetAsync(call.logprobs, 0, bytes, context.stream);
  }
  if (op.top > 0) {
    call.top_tokens = args.outputs[2].as<std::int32_t>();
    call.top_logprobs = args.outputs[3].as<float>();
  }
  call.stride = row_stride(n);
  // SAFETY: workspace_bytes asked for these floats, parts and rows, whose alignment is 4 bytes, and
  // the workspace is 256-byte aligned.
  call.values = reinterpret_cast<float*>(args.workspace.data());
  call.parts = reinterpret_cast<Part*>(call.values + rows * call.stride);
  call.parts_of_row = parts_of_row(n);
  call.results = reinterpret_cast<Row*>(call.parts + rows * call.parts_of_row);
  call.n = n;
  call.sequences = args.inputs[3].shape[0];
  call.top = op.top;
  call.scale = weight_scale(n);
  call.fault = Fault(context);
  const unsigned blocks = blocks_for(rows, 1);
  return with_float(logits.dtype, [&](auto type) {
    const unsigned parts = blocks_for(rows * call.parts_of_row, 1);
    cudaError_t error = launch_early(&read_parts<typename decltype(type)::type>, parts,
                                     kPartThreads, 0, context, call);
    if (error == cudaSuccess)
      error = launch_early(&draw_tokens, blocks, kThreads, 0, context, call);
    if (error != cudaSuccess || call.top == 0) return error;
    return launch_early(&find_top, blocks, kThreads, 0, context, call);
  });
}

}  // namespace volta::cuda
