// A BLAS by its file's name, in a name space of its own: several export the same symbols.
#include <dlfcn.h>

#include <utility>

#include "libraries.h"

namespace peers {
namespace {

using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int,
                       float, float*, int);
constexpr int kRowMajor = 101, kNoTranspose = 111;  // CBLAS.

class Blas final : public Library {
 public:
  Blas(std::string name, Sgemm sgemm) : name_(std::move(name)), sgemm_(sgemm) {}
  std::string describe() const override { return name_; }
  void add_contenders(Problem& p, std::vector<Contender>& list) override {
    const auto m = static_cast<int>(p.sizes().m), n = static_cast<int>(p.sizes().n),
               k = static_cast<int>(p.sizes().k);
    p.plain_copy(0);  // Made here, not while being timed.
    const auto run = [=, &p, sgemm = sgemm_](std::int64_t copy) {
      sgemm(kRowMajor, kNoTranspose, kNoTranspose, m, n, k, 1.0f, p.a().data(), k,
            p.plain_copy(copy).data(), n, 0.0f, p.y().data(), n);
    };
    list.push_back({name_, false, run, [&p] { return p.right(); }});
  }

 private:
  std::string name_;
  Sgemm sgemm_;
};

std::unique_ptr<Library> make_blas(const std::string& name, const std::vector<const char*>& files,
                                   const char* set_threads, int threads) {
  void* library = nullptr;
  for (const char* file : files) {
    if (library == nullptr) library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  }
  if (library == nullptr) return nullptr;
  const auto sgemm = reinterpret_cast<Sgemm>(dlsym(library, "cblas_sgemm"));
  if (sgemm == nullptr) return nullptr;
  if (void* set = dlsym(library, set_threads)) reinterpret_cast<void (*)(long)>(set)(threads);
  return std::make_unique<Blas>(name, sgemm);
}

}  // namespace

std::unique_ptr<Library> make_openblas(const LibraryOptions& options) {
  return make_blas("openblas", {"libopenblas.so.0"}, "openblas_set_num_threads", options.threads);
}

std::unique_ptr<Library> make_blis(const LibraryOptions& options) {
  return make_blas("blis", {"libblis.so.4", "libblis.so.3"}, "bli_thread_set_num_threads",
                   options.threads);
}

}  // namespace peers
