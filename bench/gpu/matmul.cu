// Speed of Volta's matrix products on a GPU beside cuBLASLt's, in turn in one process, on the same
// random data: squares, and the layers of GPT-2 124M and Llama 3 8B, forward and both gradients.
//   bench_gpu_matmul --type bf16 --set gpt2,llama,squares --rounds 7 --output json
//   bench_gpu_matmul --choices        every cut that the kernel for Hopper knows, for its table
// cuBLASLt runs the fastest of what its heuristics propose. Rows of 50,257 elements are padded to
// 50,304 for it, because it would be slow otherwise. --check compares rows with sums in f64.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/gemm_sm90.h"
#include "ops/op.h"
#include "tensor/view.h"

namespace {

using namespace volta;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::fprintf(stderr, "%s: %s\n", what, cublasLtGetStatusString(status));
  std::exit(1);
}

struct Options {
  DType type = DType::kBF16;
  std::string sets = "gpt2,llama,squares";
  std::string only;  ///< A part of the names to run.
  int rounds = 7;
  double milliseconds = 10;  ///< Of one measurement.
  bool json = false, check = false, choices = false;
};

enum class Pass { kForward, kGradInput, kGradWeight };

/// y[rows, out] = x[rows, in] w[out, in]^T, or one of its gradients.
struct Problem {
  std::string name;
  Pass pass = Pass::kForward;
  std::int64_t rows = 0, in = 0, out = 0;
  bool bias = false;
  Activation activation = Activation::kNone;

  std::int64_t padded(std::int64_t size) const { return (size + 63) / 64 * 64; }
  double flops() const { return 2.0 * double(rows) * double(in) * double(out); }
};

/// The product c[m, n] = a b of a problem. Where along_k is false the rows are steps of k.
struct Product {
  std::int64_t m, n, k;
  bool a_along_k, b_along_k;
  DType out;
};
Product product_of(const Problem& p, DType type, bool padded) {
  const std::int64_t out = padded && p.out % 8 != 0 ? p.padded(p.out) : p.out;
  switch (p.pass) {
    case Pass::kForward:
      return {p.rows, out, p.in, true, true, type};
    case Pass::kGradInput:
      return {p.rows, p.in, out, true, false, type};
    default:
      return {out, p.in, p.rows, false, false, DType::kF32};
  }
}

__global__ void fill(void* to, DType type, std::int64_t count, std::uint32_t seed) {
  for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    std::uint32_t h = static_cast<std::uint32_t>(i) * 2654435761u + seed;
    h = (h ^ h >> 16) * 0x7feb352du;
    h = (h ^ h >> 15) * 0x846ca68bu;
    h ^= h >> 16;
    const float x = static_cast<float>(h) * (2.0f / 4294967296.0f) - 1.0f;
    if (type == DType::kF32) static_cast<float*>(to)[i] = x;
    if (type == DType::kBF16) static_cast<__nv_bfloat16*>(to)[i] = __float2bfloat16(x);
    if (type == DType::kF16) static_cast<__half*>(to)[i] = __float2half(x);
  }
}

__device__ double element(const void* from, DType type, std::int64_t i) {
  if (type == DType::kF32) return static_cast<const float*>(from)[i];
  if (type == DType::kBF16) return __bfloat162float(static_cast<const __nv_bfloat16*>(from)[i]);
  return __half2float(static_cast<const __half*>(from)[i]);
}

/// Adds |c - sums|^2 and |sums|^2 of some rows of c: one block for each of 256 columns of a row.
__global__ void compare(const void* a, const void* b, const void* c, DType type, Product p,
                        const std::int64_t* rows, double* errors) {
  const std::int64_t row = rows[blockIdx.x];
  const std::int64_t column = blockIdx.y * std::int64_t{blockDim.x} + threadIdx.x;
  if (column >= p.n) return;
  double sum = 0;
  for (std::int64_t k = 0; k < p.k; ++k) {
    sum += element(a, type, p.a_along_k ? row * p.k + k : k * p.m + row) *
           element(b, type, p.b_along_k ? column * p.k + k : k * p.n + column);
  }
  const double difference = element(c, p.out, row * p.n + column) - sum;
  // A NaN must not get lost in the maximum.
  atomicAdd(&errors[0], difference * difference);
  atomicAdd(&errors[1], sum * sum);
}

struct Buffer {
  void* data = nullptr;
  explicit Buffer(std::int64_t bytes) {
    check(cudaMalloc(&data, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 256))),
          "cudaMalloc");
  }
  ~Buffer() { cudaFree(data); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
};

/// Operands of one problem. Small ones exist several times, so that the L2 cache does not hold
/// them from one product to the next.
struct Operands {
  std::int64_t a_bytes, b_bytes, c_bytes;
  int copies;
  Buffer a, b, c, bias;

  static std::int64_t bytes(std::int64_t elements, DType type) {
    return (elements * dtype_size(type) + 255) / 256 * 256;
  }
  static int copies_for(std::int64_t total) {
    constexpr std::int64_t kEnough = 150 << 20;
    return static_cast<int>(std::clamp<std::int64_t>(kEnough / total, 1, 8));
  }
  Operands(const Product& p, DType type)
      : a_bytes(bytes(p.m * p.k, type)),
        b_bytes(bytes(p.n * p.k, type)),
        c_bytes(bytes(p.m * p.n, p.out)),
        copies(copies_for(a_bytes + b_bytes + c_bytes)),
        a(a_bytes * copies),
        b(b_bytes * copies),
        c(c_bytes * copies),
        bias(p.n * 4) {
    const std::int64_t size = dtype_size(type);
    fill<<<1024, 256>>>(a.data, type, a_bytes * copies / size, 1);
    fill<<<1024, 256>>>(b.data, type, b_bytes * copies / size, 2);
    check(cudaMemset(bias.data, 0, static_cast<std::size_t>(p.n * 4)), "memset");
    check(cudaDeviceSynchronize(), "fill");
  }
  void* at(const Buffer& buffer, std::int64_t size, int copy) const {
    return static_cast<char*>(buffer.data) + size * (copy % copies);
  }
};

cudaStream_t stream;
cuda::Context context;
using Call = std::function<void(int copy)>;

/// A graph of `count` calls.
class Graph {
 public:
  Graph(const Call& call, int count) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < count; ++i) call(i);
    cudaGraph_t graph;
    check(cudaStreamEndCapture(stream, &graph), "capture");
    check(cudaGraphInstantiate(&graph_, graph, 0), "graph");
    check(cudaGraphDestroy(graph), "graph");
  }
  ~Graph() { cudaGraphExecDestroy(graph_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  double milliseconds() const {
    static cudaEvent_t begin = nullptr, end = nullptr;
    if (begin == nullptr) {
      check(cudaEventCreate(&begin), "event");
      check(cudaEventCreate(&end), "event");
    }
    check(cudaEventRecord(begin, stream), "event");
    check(cudaGraphLaunch(graph_, stream), "launch");
    check(cudaEventRecord(end, stream), "event");
    check(cudaEventSynchronize(end), "run");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "event");
    return ms;
  }

 private:
  cudaGraphExec_t graph_;
};

double once(const Call& call) {
  const Graph graph(call, 1);
  graph.milliseconds();
  return graph.milliseconds();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Volta's product through its op.
struct Ours {
  MatMul op;
  Problem problem;
  Product p;
  DType type;
  std::vector<Shape> shapes;

  Ours(const Problem& problem_, DType type_)
      : problem(problem_), p(product_of(problem_, type_, false)), type(type_) {
    op.transpose_a = !p.a_along_k;
    op.transpose_b = p.b_along_k;
    op.has_bias = problem.bias;
    op.activation = problem.activation;
    op.out = p.out;
  }
  std::vector<View> inputs(const Operands* data, int copy) const {
    std::vector<View> views = {
        View(data ? data->at(data->a, data->a_bytes, copy) : nullptr,
             TensorSpec(type, p.a_along_k ? Shape(p.m, p.k) : Shape(p.k, p.m))),
        View(data ? data->at(data->b, data->b_bytes, copy) : nullptr,
             TensorSpec(type, p.b_along_k ? Shape(p.n, p.k) : Shape(p.k, p.n)))};
    if (op.has_bias) {
      views.emplace_back(data ? data->bias.data : nullptr, TensorSpec(DType::kF32, Shape(p.n)));
    }
    return views;
  }
  std::vector<View> outputs(const Operands* data, int copy) const {
    return {View(data ? data->at(data->c, data->c_bytes, copy) : nullptr,
                 TensorSpec(p.out, Shape(p.m, p.n)))};
  }
  std::int64_t workspace() const {
    const auto in = inputs(nullptr, 0), out = outputs(nullptr, 0);
    return cuda::workspace_bytes(op, {in, out}, context);
  }
  Call call(const Operands& data, const Buffer& workspace, std::int64_t bytes,
            const cuda::Context& with) const {
    return [this, &data, &workspace, bytes, with](int copy) {
      const auto in = inputs(&data, copy), out = outputs(&data, copy);
      const cuda::Args args = {
          in, out, {static_cast<std::byte*>(workspace.data), static_cast<std::size_t>(bytes)}};
      check(cuda::run(op, args, with), "volta");
    };
  }
  /// The product with a cut of one's own. Without pieces and epilogue.
  Call call(const Operands& data, const cuda::Sm90Choice& choice) const {
    return [this, &data, choice](int copy) {
      cuda::Gemm g;
      g.a = {data.at(data.a, data.a_bytes, copy),
             type,
             p.a_along_k,
             false,
             p.a_along_k ? p.k : p.m,
             0};
      g.b = {data.at(data.b, data.b_bytes, copy),
             type,
             p.b_along_k,
             false,
             p.b_along_k ? p.k : p.n,
             0};
      g.out.c = data.at(data.c, data.c_bytes, copy);
      g.out.type = p.out;
      g.out.activation = problem.activation;
      if (op.has_bias) g.out.bias = static_cast<const float*>(data.bias.data);
      g.out.n = p.n;
      g.out.aligned = p.n % 4 == 0;
      g.m = p.m;
      g.n = p.n;
      g.k = g.piece_k = p.k;
      check(cuda::gemm_sm90_with(g, choice, context), "volta");
    };
  }
};

/// cuBLASLt's product. Its matrices are in columns, so it computes c^T = b^T a^T.
class Theirs {
 public:
  Theirs(const Problem& problem, const Product& p, DType type) {
    static cublasLtHandle_t shared = nullptr;
    if (shared == nullptr) check(cublasLtCreate(&shared), "cublasLtCreate");
    handle_ = shared;
    const auto type_of = [](DType t) {
      return t == DType::kF32 ? CUDA_R_32F : t == DType::kBF16 ? CUDA_R_16BF : CUDA_R_16F;
    };
    check(cublasLtMatmulDescCreate(&op_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLt");
    const cublasOperation_t first = p.b_along_k ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = p.a_along_k ? CUBLAS_OP_N : CUBLAS_OP_T;
    set(CUBLASLT_MATMUL_DESC_TRANSA, first);
    set(CUBLASLT_MATMUL_DESC_TRANSB, second);
    bias_ = problem.bias;
    if (problem.bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, problem.activation == Activation::kGeluTanh
                                             ? CUBLASLT_EPILOGUE_GELU_BIAS
                                             : CUBLASLT_EPILOGUE_BIAS);
    }
    const auto u = [](std::int64_t x) { return static_cast<std::uint64_t>(x); };
    const std::int64_t b_rows = p.b_along_k ? p.k : p.n, a_rows = p.a_along_k ? p.k : p.m;
    check(cublasLtMatrixLayoutCreate(&b_, type_of(type), u(b_rows), u(p.b_along_k ? p.n : p.k),
                                     b_rows),
          "cublasLt");
    check(cublasLtMatrixLayoutCreate(&a_, type_of(type), u(a_rows), u(p.a_along_k ? p.m : p.k),
                                     a_rows),
          "cublasLt");
    check(cublasLtMatrixLayoutCreate(&c_, type_of(p.out), u(p.n), u(p.m), p.n), "cublasLt");
  }
  ~Theirs() {
    cublasLtMatrixLayoutDestroy(a_);
    cublasLtMatrixLayoutDestroy(b_);
    cublasLtMatrixLayoutDestroy(c_);
    cublasLtMatmulDescDestroy(op_);
  }
  Theirs(const Theirs&) = delete;
  Theirs& operator=(const Theirs&) = delete;

  /// Takes the fastest of the proposed algorithms.
  void choose(const Operands& data, const Buffer& workspace) {
    if (bias_) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(data.bias.data));
    cublasLtMatmulPreference_t preference;
    check(cublasLtMatmulPreferenceCreate(&preference), "cublasLt");
    const std::size_t bytes = kWorkspace;
    check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &bytes, sizeof(bytes)),
          "cublasLt");
    cublasLtMatmulHeuristicResult_t results[8];
    int count = 0;
    check(cublasLtMatmulAlgoGetHeuristic(handle_, op_, b_, a_, c_, c_, preference, 8, results,
                                         &count),
          "cublasLt");
    cublasLtMatmulPreferenceDestroy(preference);
    double best = 0;
    for (int i = 0; i < count; ++i) {
      if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
      const double time = once(call(data, workspace, results[i].algo));
      if (best != 0 && time >= best) continue;
      best = time;
      algorithm_ = results[i].algo;
    }
    if (best == 0) check(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLt");
  }
  Call call(const Operands& data, const Buffer& workspace) const {
    return call(data, workspace, algorithm_);
  }

  static constexpr std::int64_t kWorkspace = 64 << 20;

 private:
  Call call(const Operands& data, const Buffer& workspace, cublasLtMatmulAlgo_t algorithm) const {
    return [this, &data, &workspace, algorithm](int copy) {
      const float one = 1, zero = 0;
      void* c = data.at(data.c, data.c_bytes, copy);
      check(cublasLtMatmul(handle_, op_, &one, data.at(data.b, data.b_bytes, copy), b_,
                           data.at(data.a, data.a_bytes, copy), a_, &zero, c, c_, c, c_, &algorithm,
                           workspace.data, static_cast<std::size_t>(kWorkspace), stream),
            "cublasLtMatmul");
    };
  }
  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(cublasLtMatmulDescSetAttribute(op_, attribute, &value, sizeof(value)), "cublasLt");
  }

  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t op_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_ = {};
  bool bias_ = false;
};

/// The relative error of the first and last 128 rows and of some between, or NaN.
double error_of(const Problem& problem, const Ours& ours, const Operands& data) {
  if (problem.activation != Activation::kNone) return 0;  // Another program's business.
  std::vector<std::int64_t> rows;
  const std::int64_t m = ours.p.m;
  for (std::int64_t i = 0; i < std::min<std::int64_t>(128, m); ++i) {
    rows.push_back(i);
    rows.push_back(m - 1 - i);
    rows.push_back(i * 7919 % m);
  }
  const Buffer list(static_cast<std::int64_t>(rows.size()) * 8), errors(16);
  check(cudaMemcpy(list.data, rows.data(), rows.size() * 8, cudaMemcpyHostToDevice), "copy");
  check(cudaMemset(errors.data, 0, 16), "memset");
  const dim3 grid(static_cast<unsigned>(rows.size()),
                  static_cast<unsigned>((ours.p.n + 255) / 256));
  compare<<<grid, 256>>>(data.a.data, data.b.data, data.c.data, ours.type, ours.p,
                         static_cast<const std::int64_t*>(list.data),
                         static_cast<double*>(errors.data));
  double result[2];
  check(cudaMemcpy(result, errors.data, 16, cudaMemcpyDeviceToHost), "compare");
  return std::sqrt(result[0] / result[1]);
}

/// How the bits of the kernels for older GPUs compare. Large results are left out.
const char* compare_bits(const Ours& ours, const Operands& data, const Buffer& workspace,
                         std::int64_t bytes) {
  if (data.c_bytes > 512 << 20) return "not compared";
  const auto read = [&] {
    std::vector<char> c(static_cast<std::size_t>(data.c_bytes));
    check(cudaMemcpy(c.data(), data.c.data, c.size(), cudaMemcpyDeviceToHost), "copy");
    return c;
  };
  const auto run = [&](int architecture) {
    check(cudaMemset(data.c.data, 0xff, static_cast<std::size_t>(data.c_bytes)), "memset");
    check(cudaDeviceSynchronize(), "memset");
    cuda::Context with = context;
    with.architecture = architecture;
    ours.call(data, workspace, bytes, with)(0);
    check(cudaStreamSynchronize(stream), "volta");
    return read();
  };
  return run(context.architecture) == run(80) ? "as with mma.sync" : "OTHER";
}

struct Result {
  std::string name;
  double ours = 0, theirs = 0;  ///< TFLOP/s.
  double ratio() const { return ours / theirs; }
};

std::vector<double> measure(const std::vector<Call>& calls, const Options& options) {
  std::vector<Graph*> graphs;
  std::vector<int> counts;
  for (const Call& call : calls) {
    const double time = std::max(once(call), 1e-3);
    counts.push_back(std::clamp(static_cast<int>(options.milliseconds / time), 1, 200));
    graphs.push_back(new Graph(call, counts.back()));
  }
  std::vector<std::vector<double>> times(calls.size());
  for (int round = -1; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const double time = graphs[i]->milliseconds() / counts[i];
      if (round >= 0) times[i].push_back(time);
    }
  }
  std::vector<double> medians;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    medians.push_back(median(times[i]));
    delete graphs[i];
  }
  return medians;
}

void show_choices(const Problem& problem, const Ours& ours, const Operands& data,
                  const Options& options) {
  std::vector<cuda::Sm90Choice> choices;
  for (const int columns : {256, 128, 64}) {
    for (const int cluster : {1, 2}) {
      if (columns > 64 || cluster == 1) choices.push_back({columns, cluster});
    }
  }
  std::vector<Call> calls;
  for (const auto& choice : choices) calls.push_back(ours.call(data, choice));
  const auto times = measure(calls, options);
  std::printf("  %-24s", problem.name.c_str());
  for (std::size_t i = 0; i < choices.size(); ++i) {
    std::printf(" %dx%d:%.0f", choices[i].columns, choices[i].cluster,
                problem.flops() / times[i] * 1e-9);
  }
  std::printf("\n");
}

Result run_problem(const Problem& problem, const Options& options) {
  const Ours ours(problem, options.type);
  const Product padded = product_of(problem, options.type, true);
  Theirs theirs(problem, padded, options.type);
  const std::int64_t bytes = ours.workspace();
  const Buffer workspace(std::max(bytes, Theirs::kWorkspace));
  const Operands data(ours.p, options.type);
  const bool same = padded.m == ours.p.m && padded.n == ours.p.n && padded.k == ours.p.k;
  const Operands* other = same ? &data : new Operands(padded, options.type);
  const Call call = ours.call(data, workspace, bytes, context);
  if (options.check) {
    check(cudaMemset(data.c.data, 0xff, static_cast<std::size_t>(data.c_bytes)), "memset");
    call(0);
    check(cudaStreamSynchronize(stream), "volta");
    const double error = error_of(problem, ours, data);
    std::printf("  %-24s error %.1e%s, bits %s\n", problem.name.c_str(), error,
                error < 3e-3 ? "" : " WRONG", compare_bits(ours, data, workspace, bytes));
    std::fflush(stdout);
  }
  theirs.choose(*other, workspace);
  const auto times = measure({call, theirs.call(*other, workspace)}, options);
  // Rows that the copy engine cannot read are copied before, which a cut does not show.
  const bool readable = ours.p.k % 8 == 0 && (ours.p.a_along_k || ours.p.m % 8 == 0);
  if (options.choices && options.type != DType::kF32 && readable) {
    show_choices(problem, ours, data, options);
  }
  if (!same) delete other;
  return {problem.name, problem.flops() / times[0] * 1e-9, problem.flops() / times[1] * 1e-9};
}

std::vector<Problem> problems(const Options& options) {
  std::vector<Problem> all;
  const auto add = [&](const std::string& name, std::int64_t rows, std::int64_t in,
                       std::int64_t out, bool bias, Activation activation = Activation::kNone) {
    const std::string size =
        std::to_string(rows) + "x" + std::to_string(in) + "x" + std::to_string(out);
    all.push_back({name + " y " + size, Pass::kForward, rows, in, out, bias, activation});
    all.push_back({name + " dx " + size, Pass::kGradInput, rows, in, out});
    all.push_back({name + " dw " + size, Pass::kGradWeight, rows, in, out});
  };
  const auto has = [&](const char* set) { return options.sets.find(set) != std::string::npos; };
  if (has("squares")) {
    for (const std::int64_t n : {1024, 2048, 4096, 8192, 16384}) {
      if (options.type == DType::kF32 && n > 8192) continue;
      add("square", n, n, n, false);
    }
  }
  if (has("gpt2")) {
    const std::int64_t rows = options.type == DType::kF32 ? 16384 : 65536;
    add("gpt2 qkv", rows, 768, 2304, true);
    add("gpt2 proj", rows, 768, 768, true);
    add("gpt2 up", rows, 768, 3072, true, Activation::kGeluTanh);
    add("gpt2 down", rows, 3072, 768, true);
    add("gpt2 vocab", rows, 768, 50257, false);
  }
  if (has("llama")) {
    const std::int64_t rows = options.type == DType::kF32 ? 2048 : 8192;
    add("llama qkv", rows, 4096, 6144, false);
    add("llama out", rows, 4096, 4096, false);
    add("llama up", rows, 4096, 14336, false);
    add("llama down", rows, 14336, 4096, false);
  }
  std::erase_if(all,
                [&](const Problem& p) { return p.name.find(options.only) == std::string::npos; });
  return all;
}

Options parse(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string name = arguments[i];
    const auto value = [&] { return std::string(i + 1 < count ? arguments[++i] : ""); };
    if (name == "--type") {
      const std::string type = value();
      options.type = type == "f32" ? DType::kF32 : type == "f16" ? DType::kF16 : DType::kBF16;
    } else if (name == "--set") {
      options.sets = value();
    } else if (name == "--only") {
      options.only = value();
    } else if (name == "--rounds") {
      options.rounds = std::max(1, std::atoi(value().c_str()));
    } else if (name == "--milliseconds") {
      options.milliseconds = std::atof(value().c_str());
    } else if (name == "--output") {
      options.json = value() == "json";
    } else if (name == "--check") {
      options.check = true;
    } else if (name == "--choices") {
      options.choices = true;
    } else {
      std::fprintf(stderr,
                   "bench_gpu_matmul [--type bf16|f16|f32] [--set squares,gpt2,llama] [--only "
                   "TEXT] [--rounds N] [--milliseconds MS] [--output text|json] [--check] "
                   "[--choices]\n");
      std::exit(2);
    }
  }
  return options;
}

void report(const std::vector<Result>& results, const Options& options, const char* gpu) {
  double logs = 0;
  const Result* worst = nullptr;
  for (const Result& r : results) {
    logs += std::log(r.ratio());
    if (worst == nullptr || r.ratio() < worst->ratio()) worst = &r;
  }
  if (worst == nullptr) return;
  const double mean = std::exp(logs / static_cast<double>(results.size()));
  if (options.json) {
    std::printf("{\"gpu\": \"%s\", \"type\": \"%s\", \"products\": [", gpu,
                std::string(dtype_name(options.type)).c_str());
    for (std::size_t i = 0; i < results.size(); ++i) {
      std::printf(
          "%s\n  {\"name\": \"%s\", \"volta_tflops\": %.1f, \"cublaslt_tflops\": %.1f, "
          "\"ratio\": %.3f}",
          i == 0 ? "" : ",", results[i].name.c_str(), results[i].ours, results[i].theirs,
          results[i].ratio());
    }
    std::printf("],\n \"geometric_mean\": %.3f, \"worst\": %.3f}\n", mean, worst->ratio());
    return;
  }
  std::printf("geometric mean %.3f, worst %.3f (%s)\n", mean, worst->ratio(), worst->name.c_str());
}

}  // namespace

int main(int count, char** arguments) {
  const Options options = parse(count, arguments);
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0), "no GPU");
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  context.stream = stream;
  context.multiprocessors = properties.multiProcessorCount;
  context.architecture = properties.major * 10 + properties.minor;
  std::vector<Result> results;
  if (!options.json) {
    std::printf("%s, %s; TFLOP/s\n%-30s %8s %9s %6s\n", properties.name,
                std::string(dtype_name(options.type)).c_str(), "", "Volta", "cuBLASLt", "ratio");
  }
  for (const Problem& problem : problems(options)) {
    results.push_back(run_problem(problem, options));
    const Result& r = results.back();
    if (!options.json) {
      std::printf("%-30s %8.1f %9.1f %6.3f\n", r.name.c_str(), r.ours, r.theirs, r.ratio());
      std::fflush(stdout);
    }
  }
  report(results, options, properties.name);
  return 0;
}
