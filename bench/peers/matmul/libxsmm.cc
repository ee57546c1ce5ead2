// libxsmm: small f32 products on one thread; its kernels are generated for one shape each.
#include "libraries.h"

#ifdef VOLTA_PEER_XSMM
#include <libxsmm.h>

namespace peers {
namespace {

class LibXsmm final : public Library {
 public:
  std::string describe() const override { return "libxsmm " LIBXSMM_VERSION; }
  // It is column-major, so the operands swap.
  void add_contenders(Problem& p, std::vector<Contender>& list) override {
    constexpr double kLargest = 512.0 * 512 * 512;
    if (p.sizes().ops() > 2 * kLargest) return;
    const auto m = static_cast<libxsmm_blasint>(p.sizes().n),
               n = static_cast<libxsmm_blasint>(p.sizes().m),
               k = static_cast<libxsmm_blasint>(p.sizes().k);
    const libxsmm_mmfunction<float> kernel(LIBXSMM_GEMM_FLAG_NONE, m, n, k, m, k, m, 1.0f, 0.0f);
    if (!kernel) return;
    p.plain_copy(0);
    const auto run = [kernel, &p](std::int64_t copy) {
      kernel(p.plain_copy(copy).data(), p.a().data(), p.y().data());
    };
    list.push_back({"libxsmm", false, run, [&p] { return p.right(); }});
  }
};

}  // namespace

std::unique_ptr<Library> make_libxsmm(const LibraryOptions& options) {
  if (options.threads != 1) return nullptr;
  return std::make_unique<LibXsmm>();
}

}  // namespace peers
#else
namespace peers {
std::unique_ptr<Library> make_libxsmm(const LibraryOptions&) { return nullptr; }
}  // namespace peers
#endif
