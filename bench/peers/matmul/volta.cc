// Volta's products as models run them: one op on the device, into memory that is there already.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <utility>

#include "base/version.h"
#include "device/cpu_device.h"
#include "device/tensor_ops.h"
#include "libraries.h"
#include "tuner/open_device.h"

namespace peers {
namespace {

using volta::DType;
using volta::Encoding;
using volta::MatMul;
using volta::Shape;
using volta::Tensor;
using volta::TensorSpec;

/// The one place where the device is made.
volta::Result<std::shared_ptr<volta::CpuDevice>> make_device(const LibraryOptions& options) {
  VOLTA_TRY(const auto simd, volta::choose_simd({}));
  VOLTA_TRY(auto tuning, volta::load_tuning(simd));
  return volta::CpuDevice::create(
      {.threads = options.threads, .simd = simd, .tuning = std::move(tuning)});
}

template <typename T>
T or_exit(volta::Result<T> result) {
  if (result) return *std::move(result);
  std::fprintf(stderr, "volta: %s\n", result.error().message().c_str());
  std::exit(1);
}

// Everything one way of multiplying needs.
struct Product {
  volta::Op op = MatMul{};
  Tensor a, workspace;
  std::vector<Tensor> b;
  std::array<volta::View, 2> in;
  std::array<volta::View, 1> out;
};

class Volta final : public Library {
 public:
  explicit Volta(std::shared_ptr<volta::CpuDevice> device) : device_(std::move(device)) {}

  std::string describe() const override {
    return "volta " + std::string(volta::version_with_hash()) + " (" + device_->info().isa + ")";
  }

  bool multiplies(Type) const override { return true; }

  void add_contenders(Problem& p, std::vector<Contender>& list) override {
    switch (p.type()) {
      case Type::kF32:
        add(p, list, "volta packed", DType::kF32, {DType::kF32, {}, {}}, true);
        add(p, list, "volta", DType::kF32, {DType::kF32, {}, {}}, false);
        return;
      case Type::kBf16:  // As with --dtype bf16, then as with --weights bf16.
        add(p, list, "volta packed", DType::kBF16, {DType::kBF16, {}, {}}, true);
        add(p, list, "volta f32 rows", DType::kF32, {DType::kBF16, {}, {}}, true);
        return;
      case Type::kInt8:
        add(p, list, "volta packed", DType::kF32,
            {DType::kF32, {}, Encoding{.quant = volta::Quant::kInt8}}, true);
        return;
    }
  }

 private:
  // `weight` says the type and, quantised, the integers; its shape is filled in.
  void add(Problem& p, std::vector<Contender>& list, std::string name, DType a_type,
           TensorSpec weight, bool packed) {
    auto product = std::make_shared<Product>();
    const Case& c = p.sizes();
    weight.shape = Shape(c.k, c.n);
    if (packed) weight.encoding = device_->preferred_encoding(product->op, 1, weight);
    const Tensor a = or_exit(Tensor::from_values<float>(Shape(c.m, c.k), p.a()));
    product->a = or_exit(volta::tensor_ops::as_spec(*device_, a, {a_type, a.shape(), {}}));
    const Tensor b = or_exit(Tensor::from_values<float>(weight.shape, p.b()));
    for (std::int64_t i = 0; i < p.copies(); ++i) {
      // Encoding makes a new tensor; plain ones must be copied.
      product->b.push_back(packed ? or_exit(volta::tensor_ops::as_spec(*device_, b, weight))
                                  : or_exit(b.clone_to(device_->memory())));
    }
    product->in = {product->a.view(), product->b[0].view()};
    product->out = {volta::View{p.y().data(), {DType::kF32, Shape(c.m, c.n)}}};
    const std::array inputs = {product->a.spec(), product->b[0].spec()};
    const std::array outputs = {TensorSpec{DType::kF32, Shape(c.m, c.n), {}}};
    const std::int64_t bytes = device_->workspace_bytes(product->op, inputs, outputs);
    product->workspace = or_exit(Tensor::empty({DType::kI8, Shape(bytes)}, device_->memory()));
    const auto run = [device = device_, product](std::int64_t copy) {
      product->in[1] = product->b[static_cast<std::size_t>(copy)].view();
      const std::span workspace(product->workspace.view().as<std::byte>(),
                                static_cast<std::size_t>(product->workspace.bytes()));
      const auto done = device->run({&product->op, product->in, product->out, workspace, {}});
      if (!done) std::fprintf(stderr, "volta: %s\n", done.error().message().c_str());
    };
    list.push_back(
        {std::move(name), packed, run, [&p] { return p.right(); }, product->b[0].bytes()});
  }

  std::shared_ptr<volta::CpuDevice> device_;
};

}  // namespace

std::unique_ptr<Library> make_volta(const LibraryOptions& options, std::string& error) {
  auto device = make_device(options);
  if (device) return std::make_unique<Volta>(*std::move(device));
  error = device.error().message();
  return nullptr;
}

}  // namespace peers
