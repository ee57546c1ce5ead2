// oneDNN: f32, bf16 x bf16 -> f32 and u8 x s8 -> s32, with weights in the format that it likes best
// (made before), and for f32 also in plain rows. Compiled once for each version of oneDNN there is,
// each time into a module that onednn_modules.cc loads.
#include <dlfcn.h>
#include <fmt/format.h>

#include <cmath>
#include <dnnl.hpp>

#include "libraries.h"

namespace peers {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

// Integers that the check can work out again: u8 from [-0.5, 0.5) to 0 .. 127, so that no CPU's sum
// of two products overflows 16 bits, and s8 to -127 .. 127.
float as_u8(float value) { return std::round((value + 0.5f) * 127.0f); }
float as_s8(float value) { return std::round(value * 254.0f); }

// A primitive with its operands.
struct Product {
  dnnl::matmul matmul;
  std::vector<Block> blocks;  // What the memories below point to.
  memory a, y;
  std::vector<memory> b;
};

class OneDnn final : public Library {
 public:
  OneDnn() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}
  std::string describe() const override {
    const auto* version = dnnl::version();
    return fmt::format("onednn {}.{}.{} (isa {:#x})", version->major, version->minor,
                       version->patch, static_cast<unsigned>(dnnl::get_effective_cpu_isa()));
  }

  bool multiplies(Type) const override { return true; }

  void add_contenders(Problem& p, std::vector<Contender>& list) override {
    for (const bool prepared : {true, false}) {
      if (!prepared && p.type() != Type::kF32) continue;
      try {
        add(p, list, prepared);
      } catch (const dnnl::error& error) {
        std::fprintf(stderr, "onednn has no %s product here: %s\n", type_name(p.type()),
                     error.what());
      }
    }
  }

 private:
  void add(Problem& p, std::vector<Contender>& list, bool prepared) {
    using Data = memory::data_type;
    const Case c = p.sizes();
    const bool integers = p.type() == Type::kInt8;
    const Data narrow = p.type() == Type::kBf16 ? Data::bf16 : Data::f32;
    const memory::desc a({c.m, c.k}, integers ? Data::u8 : narrow, Tag::ab);
    const memory::desc y({c.m, c.n}, integers ? Data::s32 : Data::f32, Tag::ab);
    const memory::desc b({c.k, c.n}, integers ? Data::s8 : narrow, prepared ? Tag::any : Tag::ab);
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc primitive(engine_, a, b, y);
#else
    const dnnl::matmul::primitive_desc primitive(dnnl::matmul::desc(a, b, y), engine_);
#endif
    auto product = std::make_shared<Product>();
    product->matmul = dnnl::matmul(primitive);
    product->a = converted(*product, a, {c.m, c.k}, p.a(), integers ? as_u8 : nullptr);
    product->y = memory(y, engine_, p.y().data());  // s32 takes the place of f32.
    for (std::int64_t i = 0; i < p.copies(); ++i) {
      product->b.push_back(converted(*product, primitive.weights_desc(), {c.k, c.n}, p.b(),
                                     integers ? as_s8 : nullptr));
    }
    const auto run = [this, product](std::int64_t copy) {
      product->matmul.execute(stream_,
                              {{DNNL_ARG_SRC, product->a},
                               {DNNL_ARG_WEIGHTS, product->b[static_cast<std::size_t>(copy)]},
                               {DNNL_ARG_DST, product->y}});
      stream_.wait();
    };
    const std::string name = fmt::format("onednn{}", dnnl::version()->major);
    list.push_back({prepared ? name + " packed" : name, prepared, run,
                    [&p, integers] { return integers ? right_integers(p) : p.right(); }});
  }

  // f32 rows, through `round` where there is one, in another type and format.
  memory converted(Product& product, const memory::desc& wanted, const memory::dims& sizes,
                   std::span<float> values, float (*round)(float)) {
    std::vector<float> source(values.begin(), values.end());
    if (round != nullptr) {
      for (float& value : source) value = round(value);
    }
    memory from({sizes, memory::data_type::f32, Tag::ab}, engine_, source.data());
    Block& block = product.blocks.emplace_back(static_cast<std::int64_t>(wanted.get_size()));
    memory to(wanted, engine_, block.data());
    dnnl::reorder(from, to).execute(stream_, from, to);
    stream_.wait();
    return to;
  }

  static bool right_integers(Problem& p) {
    const Case c = p.sizes();
    const auto* sums = reinterpret_cast<const std::int32_t*>(p.y().data());
    return right_at_samples(c, [&](std::int64_t row, std::int64_t column) {
      double sum = 0;  // Exact: far below 2^53.
      for (std::int64_t i = 0; i < c.k; ++i) {
        sum += static_cast<double>(as_u8(p.a()[static_cast<std::size_t>(row * c.k + i)])) *
               as_s8(p.b()[static_cast<std::size_t>(i * c.n + column)]);
      }
      return sum == sums[row * c.n + column];
    });
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
};

}  // namespace

}  // namespace peers

extern "C" [[gnu::visibility("default")]] peers::Library* peers_make_onednn(
    const peers::LibraryOptions& options) {
  // OpenMP has read its environment before main().
  if (void* set = dlsym(RTLD_DEFAULT, "omp_set_num_threads")) {
    reinterpret_cast<void (*)(int)>(set)(options.threads);
  }
  return new peers::OneDnn();
}
