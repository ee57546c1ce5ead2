// Volta's f32 matrix product against OpenBLAS, BLIS, oneDNN and libxsmm: same shapes, same data,
// one process, in turn. Prints the median GFLOP/s of each, Volta's ratio to the best of the others,
// and its share of the FMA peak and read bandwidth measured in the same run.
//   bench/peers/matmul [--threads 1] [--rounds 9] [--set squares|rows|all] [--output text|csv]
// Two comparisons: weights prepared once (Volta's panels, oneDNN's own format), and plain [K, N].
// "cold" rotates weights of more than 256 MiB in all. libxsmm and peers that are missing are left
// out. See bench/peers/run, which installs and builds them.
#include <dlfcn.h>
#include <immintrin.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory.h"
#include "base/parallel.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul_plan.h"
#ifdef VOLTA_PEER_DNNL
#include <dnnl.hpp>
#endif
#ifdef VOLTA_PEER_XSMM
#include <libxsmm.h>
#endif

namespace {

using volta::AlignedBytes;
using volta::DType;
using volta::Encoding;
using volta::MatMul;
using volta::Packing;
using volta::Shape;
using volta::View;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Options {
  int threads = 1;
  int rounds = 9;
  std::string set = "all";
  bool csv = false;
};

struct Case {
  std::int64_t m, k, n;
  bool cold;
};

std::vector<Case> cases(const std::string& set) {
  std::vector<Case> all;
  if (set != "rows") {
    for (const std::int64_t n : {64, 128, 256, 512, 768, 1024, 2048})
      all.push_back({n, n, n, false});
  }
  if (set == "squares") return all;
  constexpr std::array<std::array<std::int64_t, 2>, 6> kWeights = {
      {{768, 3072}, {768, 2304}, {3072, 768}, {2048, 5632}, {4096, 4096}, {768, 50257}}};
  for (const auto& [k, n] : kWeights) {
    for (const std::int64_t m : {1, 2, 4, 8, 16, 32, 128, 512}) {
      for (const bool cold : {false, true}) all.push_back({m, k, n, cold});
    }
  }
  return all;
}

// ---- operands ---------------------------------------------------------------------------------

struct Buffer {
  explicit Buffer(std::int64_t floats) {
    auto made = volta::try_allocate(floats * 4);
    if (!made) {
      std::fprintf(stderr, "%s\n", made.error().message().c_str());
      std::exit(4);
    }
    bytes = *std::move(made);
  }
  float* data() { return reinterpret_cast<float*>(bytes.data()); }
  AlignedBytes bytes;
};

void fill(Buffer& buffer, std::int64_t n, std::uint32_t seed) {
  for (std::int64_t i = 0; i < n; ++i) {
    seed = seed * 1664525u + 1013904223u;
    buffer.data()[i] = static_cast<float>(static_cast<std::int32_t>(seed >> 8)) / (1 << 24) - 0.5f;
  }
}

struct Problem {
  Case c;
  std::int64_t copies = 1;
  Buffer a, y;
  std::vector<Buffer> weights;

  explicit Problem(const Case& its_case)
      : c(its_case), a(its_case.m * its_case.k), y(its_case.m * its_case.n) {
    const std::int64_t bytes = c.k * c.n * 4;
    if (c.cold) copies = std::max<std::int64_t>(2, (std::int64_t{256} << 20) / bytes + 1);
    fill(a, c.m * c.k, 99);
    for (std::int64_t i = 0; i < copies; ++i) {
      weights.emplace_back(c.k * c.n);
      fill(weights.back(), c.k * c.n, static_cast<std::uint32_t>(i + 1));
    }
  }
  double flops() const { return 2.0 * static_cast<double>(c.m * c.k) * static_cast<double>(c.n); }

  // Whether y = a b for the first weights, at some places.
  bool right() {
    std::uint32_t seed = 7;
    for (int sample = 0; sample < 40; ++sample) {
      seed = seed * 1664525u + 1013904223u;
      const std::int64_t i = (seed >> 8) % c.m;
      seed = seed * 1664525u + 1013904223u;
      const std::int64_t j = (seed >> 8) % c.n;
      double sum = 0;
      for (std::int64_t k = 0; k < c.k; ++k) {
        sum += static_cast<double>(a.data()[i * c.k + k]) * weights[0].data()[k * c.n + j];
      }
      const double error = std::abs(sum - y.data()[i * c.n + j]);
      if (!(error < 1e-4 * std::sqrt(static_cast<double>(c.k)))) return false;
    }
    return true;
  }
};

// ---- contenders -------------------------------------------------------------------------------

struct Contender {
  std::string name;
  bool prepared = false;                  ///< Weights in a form of its own, made before.
  std::function<void(std::int64_t)> run;  ///< With weights number i.
};

// Volta's kernel, as the device calls it.
class Volta {
 public:
  explicit Volta(int threads) : pool_(*volta::ThreadPool::create(threads)) {
    context_.simd = volta::cpu::best_simd();
    if (const char* simd = std::getenv("VOLTA_SIMD")) {
      for (const auto wanted : {volta::cpu::Simd::kSse4, volta::cpu::Simd::kAvx2}) {
        if (volta::cpu::simd_name(wanted) == std::string_view(simd)) context_.simd = wanted;
      }
    }
    context_.pool = &pool_;
  }
  const char* simd() const { return volta::cpu::simd_name(context_.simd); }

  Contender contender(Problem& p, bool prepared) {
    const Case c = p.c;
    const Encoding panels{Packing::kPanels, false,
                          static_cast<std::int32_t>(volta::cpu::panel_width(context_.simd))};
    auto weights = std::make_shared<std::vector<Buffer>>();
    if (prepared) {
      for (Buffer& weight : p.weights) {
        Buffer& packed =
            weights->emplace_back(volta::encoded_bytes(DType::kF32, Shape(c.k, c.n), panels) / 4);
        const std::array in = {View{weight.data(), DType::kF32, Shape(c.k, c.n)}};
        const std::array out = {View{packed.data(), DType::kF32, Shape(c.k, c.n), panels}};
        volta::cpu::run(volta::Encode{panels}, {in, out, {}}, context_);
      }
    }
    const auto run = [this, &p, c, weights, prepared, panels](std::int64_t i) {
      Buffer& weight = prepared ? (*weights)[static_cast<std::size_t>(i)]
                                : p.weights[static_cast<std::size_t>(i)];
      const std::array in = {
          View{p.a.data(), DType::kF32, Shape(c.m, c.k)},
          View{weight.data(), DType::kF32, Shape(c.k, c.n), prepared ? panels : Encoding{}}};
      const std::array out = {View{p.y.data(), DType::kF32, Shape(c.m, c.n)}};
      if (workspace_bytes_ == 0) reserve(in, out);
      volta::cpu::run(MatMul{}, {in, out, workspace_.span()}, context_);
    };
    workspace_bytes_ = 0;
    return {prepared ? "volta packed" : "volta", prepared, run};
  }

 private:
  void reserve(std::span<const View> in, std::span<const View> out) {
    constexpr std::int64_t kPlenty = std::int64_t{64} << 20;
    workspace_bytes_ =
        std::max<std::int64_t>(kPlenty, volta::cpu::workspace_bytes(MatMul{}, {in, out}, context_));
    if (workspace_.size() < workspace_bytes_) workspace_ = *volta::try_allocate(workspace_bytes_);
  }
  volta::ThreadPool pool_;
  volta::cpu::Context context_;
  AlignedBytes workspace_;
  std::int64_t workspace_bytes_ = 0;
};

// A BLAS by name, in a name space of its own: several export the same symbols.
class Blas {
 public:
  Blas(std::string name, const std::vector<const char*>& files,
       const std::vector<const char*>& set_threads, int threads)
      : name_(std::move(name)) {
    for (const char* file : files) {
      if (library_ == nullptr) library_ = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    }
    if (library_ == nullptr) return;
    sgemm_ = reinterpret_cast<Sgemm>(dlsym(library_, "cblas_sgemm"));
    for (const char* function : set_threads) {
      if (void* set = dlsym(library_, function)) reinterpret_cast<void (*)(long)>(set)(threads);
    }
  }
  bool there() const { return sgemm_ != nullptr; }
  Contender contender(Problem& p) const {
    return {name_, false, [this, &p](std::int64_t i) {
              const auto m = static_cast<int>(p.c.m), n = static_cast<int>(p.c.n),
                         k = static_cast<int>(p.c.k);
              constexpr int kRowMajor = 101, kNoTrans = 111;
              sgemm_(kRowMajor, kNoTrans, kNoTrans, m, n, k, 1.0f, p.a.data(), k,
                     p.weights[static_cast<std::size_t>(i)].data(), n, 0.0f, p.y.data(), n);
            }};
  }

 private:
  using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int,
                         float, float*, int);
  std::string name_;
  void* library_ = nullptr;
  Sgemm sgemm_ = nullptr;
};

#ifdef VOLTA_PEER_DNNL
class OneDnn {
 public:
  OneDnn() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}
  Contender contender(Problem& p, bool prepared) {
    using dnnl::memory;
    const Case c = p.c;
    const auto md = [](std::int64_t rows, std::int64_t columns, memory::format_tag tag) {
      return memory::desc({rows, columns}, memory::data_type::f32, tag);
    };
    const auto a = md(c.m, c.k, memory::format_tag::ab), y = md(c.m, c.n, memory::format_tag::ab);
    const auto plain = md(c.k, c.n, memory::format_tag::ab);
    const auto b = prepared ? md(c.k, c.n, memory::format_tag::any) : plain;
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc pd(engine_, a, b, y);
#else
    const dnnl::matmul::primitive_desc pd(dnnl::matmul::desc(a, b, y), engine_);
#endif
    auto state = std::make_shared<State>(State{
        dnnl::matmul(pd), memory(a, engine_, p.a.data()), memory(y, engine_, p.y.data()), {}});
    for (Buffer& weight : p.weights) {
      memory from(plain, engine_, weight.data());
      if (!prepared || pd.weights_desc() == plain) {
        state->b.push_back(from);
        continue;
      }
      memory to(pd.weights_desc(), engine_);
      dnnl::reorder(from, to).execute(stream_, from, to);
      stream_.wait();
      state->b.push_back(to);
    }
    return {prepared ? "onednn packed" : "onednn", prepared, [this, state](std::int64_t i) {
              state->matmul.execute(stream_,
                                    {{DNNL_ARG_SRC, state->a},
                                     {DNNL_ARG_WEIGHTS, state->b[static_cast<std::size_t>(i)]},
                                     {DNNL_ARG_DST, state->y}});
              stream_.wait();
            }};
  }

 private:
  struct State {
    dnnl::matmul matmul;
    dnnl::memory a, y;
    std::vector<dnnl::memory> b;
  };
  dnnl::engine engine_;
  dnnl::stream stream_;
};
#endif

#ifdef VOLTA_PEER_XSMM
// Small products only: its kernels are generated for one shape. Column-major, so operands swap.
bool add_xsmm(std::vector<Contender>& list, Problem& p) {
  const auto m = static_cast<libxsmm_blasint>(p.c.n), n = static_cast<libxsmm_blasint>(p.c.m),
             k = static_cast<libxsmm_blasint>(p.c.k);
  if (static_cast<double>(m) * n * k > 512.0 * 512 * 512) return false;
  const libxsmm_mmfunction<float> kernel(LIBXSMM_GEMM_FLAG_NONE, m, n, k, m, k, m, 1.0f, 0.0f);
  if (!kernel) return false;
  list.push_back({"libxsmm", false, [kernel, &p](std::int64_t i) {
                    kernel(p.weights[static_cast<std::size_t>(i)].data(), p.a.data(), p.y.data());
                  }});
  return true;
}
#endif

// ---- the machine ------------------------------------------------------------------------------

// Twelve chains of multiply-adds in registers; the seconds of `loops` steps.
#define VOLTA_FMA_SECONDS(name, isa, vector, set1, fma, first)       \
  __attribute__((target(isa))) double name(std::int64_t loops) {     \
    vector sum[12];                                                  \
    for (auto& s : sum) s = set1(1.0f);                              \
    const vector x = set1(0.999999f), y = set1(1e-7f);               \
    const double begin = seconds();                                  \
    for (std::int64_t i = 0; i < loops; ++i) {                       \
      _Pragma("GCC unroll 12") for (auto& s : sum) s = fma(s, x, y); \
    }                                                                \
    const double end = seconds();                                    \
    float total = 0;                                                 \
    for (const auto& s : sum) total += first(s);                     \
    return total == 12345.0f ? 0.0 : end - begin;                    \
  }
VOLTA_FMA_SECONDS(fma256_seconds, "avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps,
                  _mm256_cvtss_f32)
VOLTA_FMA_SECONDS(fma512_seconds, "avx512f", __m512, _mm512_set1_ps, _mm512_fmadd_ps,
                  _mm512_cvtss_f32)
#undef VOLTA_FMA_SECONDS

// The most that `threads` cores can do.
double peak_gflops(int threads) {
  constexpr std::int64_t kLoops = 2'000'000;
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    best = std::max(best, 16.0 / fma256_seconds(kLoops));
    if (__builtin_cpu_supports("avx512f")) best = std::max(best, 32.0 / fma512_seconds(kLoops));
  }
  return threads * static_cast<double>(kLoops) * 12 * best * 1e-9;
}

// 32 sums, so that loads and not adds are what it waits for.
__attribute__((target("avx2"))) float sum_of(const float* p, std::int64_t n) {
  __m256 sum[4] = {};
  for (std::int64_t i = 0; i + 32 <= n; i += 32) {
    _mm_prefetch(reinterpret_cast<const char*>(p + i + 1024), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(p + i + 1040), _MM_HINT_T0);
    for (int l = 0; l < 4; ++l) sum[l] = _mm256_add_ps(sum[l], _mm256_loadu_ps(p + i + 8 * l));
  }
  return _mm256_cvtss_f32(
      _mm256_add_ps(_mm256_add_ps(sum[0], sum[1]), _mm256_add_ps(sum[2], sum[3])));
}

double read_gbs(int threads) {
  constexpr std::int64_t kFloats = std::int64_t{128} << 20;
  Buffer buffer(kFloats);
  std::memset(buffer.data(), 0, kFloats * 4);
  auto pool = volta::ThreadPool::create(threads);
  double best = 1e9;
  std::atomic<float> sink = 0;
  for (int i = 0; i < 5; ++i) {
    const double begin = seconds();
    volta::parallel_for(*pool, 0, kFloats, kFloats / threads,
                        [&](std::int64_t from, std::int64_t to) {
                          sink = sink + sum_of(buffer.data() + from, to - from);
                        });
    best = std::min(best, seconds() - begin);
  }
  return static_cast<double>(kFloats) * 4 / best * 1e-9;
}

// ---- measuring --------------------------------------------------------------------------------

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Median GFLOP/s of each, in turn.
std::vector<double> measure(Problem& p, const std::vector<Contender>& list, int rounds) {
  std::vector<std::vector<double>> rates(list.size());
  std::vector<std::int64_t> calls(list.size(), 1), next(list.size(), 0);
  for (int round = -1; round < rounds; ++round) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      // OpenMP's threads spin for a while after their work, on the cores of whoever comes next.
      usleep(10'000);
      list[i].run(next[i]++ % p.copies);
      const double begin = seconds();
      for (std::int64_t call = 0; call < calls[i]; ++call) list[i].run(next[i]++ % p.copies);
      const double spent = std::max(seconds() - begin, 1e-9);
      if (round < 0) {  // Warm; find how often fills 10 ms.
        list[i].run(0);
        if (!p.right()) std::printf("!! %s is wrong\n", list[i].name.c_str());
        const double once = seconds();
        list[i].run(0);
        calls[i] = std::clamp<std::int64_t>(
            static_cast<std::int64_t>(0.01 / std::max(seconds() - once, 1e-8)), 1, 1 << 20);
      } else {
        rates[i].push_back(p.flops() * static_cast<double>(calls[i]) / spent * 1e-9);
      }
    }
  }
  std::vector<double> result;
  for (const auto& r : rates) result.push_back(median(r));
  return result;
}

struct Mean {
  double log_sum = 0;
  int count = 0;
  double worst = 1e9;
  void add(double ratio) {
    log_sum += std::log(ratio);
    ++count;
    worst = std::min(worst, ratio);
  }
  double value() const { return count == 0 ? 0 : std::exp(log_sum / count); }
};

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--threads") o.threads = std::atoi(argv[i + 1]);
    if (flag == "--rounds") o.rounds = std::max(1, std::atoi(argv[i + 1]));
    if (flag == "--set") o.set = argv[i + 1];
    if (flag == "--output") o.csv = std::string_view(argv[i + 1]) == "csv";
  }
  return o;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  // OpenMP (oneDNN, BLIS) has read its environment before main().
  if (void* set = dlsym(RTLD_DEFAULT, "omp_set_num_threads")) {
    reinterpret_cast<void (*)(int)>(set)(options.threads);
  }
  Volta volta(options.threads);
  const Blas openblas("openblas", {"libopenblas.so.0"}, {"openblas_set_num_threads"},
                      options.threads);
  const Blas blis("blis", {"libblis.so.4", "libblis.so.3"}, {"bli_thread_set_num_threads"},
                  options.threads);
#ifdef VOLTA_PEER_DNNL
  OneDnn onednn;
#endif
  const double peak = peak_gflops(options.threads), read = read_gbs(options.threads);
  std::printf("# %d threads, %s, FMA peak %.0f GFLOP/s, read %.1f GB/s\n", options.threads,
              volta.simd(), peak, read);
  if (options.csv) std::printf("m,k,n,state,kind,contender,gflops\n");
  Mean packed_mean, plain_mean;
  for (const Case& c : cases(options.set)) {
    Problem p(c);
    std::vector<Contender> list = {volta.contender(p, true), volta.contender(p, false)};
    if (openblas.there()) list.push_back(openblas.contender(p));
    if (blis.there()) list.push_back(blis.contender(p));
#ifdef VOLTA_PEER_DNNL
    list.push_back(onednn.contender(p, true));
    list.push_back(onednn.contender(p, false));
#endif
#ifdef VOLTA_PEER_XSMM
    if (options.threads == 1) add_xsmm(list, p);
#endif
    const std::vector<double> rates = measure(p, list, options.rounds);
    double best = 0, best_plain = 0;
    for (std::size_t i = 2; i < list.size(); ++i) {
      best = std::max(best, rates[i]);
      if (!list[i].prepared) best_plain = std::max(best_plain, rates[i]);
    }
    const char* state = c.cold ? "cold" : "hot";
    if (options.csv) {
      for (std::size_t i = 0; i < list.size(); ++i) {
        std::printf("%ld,%ld,%ld,%s,%s,%s,%.2f\n", c.m, c.k, c.n, state,
                    list[i].prepared ? "packed" : "plain", list[i].name.c_str(), rates[i]);
      }
    } else {
      const double bytes = static_cast<double>(c.k * c.n) * 4 / (p.flops() / rates[0] * 1e-9);
      std::printf("%4ld x %5ld x %5ld %-4s packed %6.1f (%3.0f%% peak, %3.0f%% read)", c.m, c.k,
                  c.n, state, rates[0], 100 * rates[0] / peak, 100 * bytes * 1e-9 / read);
      std::printf(" %5.2fx | plain %6.1f %5.2fx |", best > 0 ? rates[0] / best : 0.0, rates[1],
                  best_plain > 0 ? rates[1] / best_plain : 0.0);
      for (std::size_t i = 2; i < list.size(); ++i) {
        std::printf(" %s %.1f", list[i].name.c_str(), rates[i]);
      }
      std::printf("\n");
    }
    if (best > 0) packed_mean.add(rates[0] / best);
    if (best_plain > 0) plain_mean.add(rates[1] / best_plain);
    std::fflush(stdout);
  }
  std::printf("# packed against the best: geometric mean %.3f, worst %.2f\n", packed_mean.value(),
              packed_mean.worst);
  std::printf("# plain against the best plain: geometric mean %.3f, worst %.2f\n",
              plain_mean.value(), plain_mean.worst);
  return 0;
}
