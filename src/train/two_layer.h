// The smallest thing that learns: two dense layers with a ReLU between them, trained by gradient
// descent over the whole data set, on any device. The same graph, autodiff and ops as the big
// models; small enough to check by hand.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "tensor/tensor.h"

namespace [[gnu::visibility("default")]] volta {

struct TwoLayerOptions {
  std::int64_t hidden = 32;    ///< Width of the hidden layer, H.
  float learning_rate = 0.1f;  ///< Of plain SGD.
  std::int64_t epochs = 100;   ///< Updates, each over all rows.
  std::uint64_t seed = 1;      ///< Of the initial weights.
};

/// y = relu(x w1 + b1) w2 + b2, and how training went.
struct TwoLayerResult {
  Tensor w1;                  ///< f32[D, H], uniform in +-1/sqrt(D) at first.
  Tensor b1;                  ///< f32[H], zero at first.
  Tensor w2;                  ///< f32[H, K], uniform in +-1/sqrt(H) at first.
  Tensor b2;                  ///< f32[K], zero at first.
  std::vector<float> losses;  ///< Mean loss before each update.
};

/// Trains a classifier of `classes` classes with softmax and cross entropy.
/// x f32[N, D], labels i32[N] in [0, classes); host tensors or the device's. Weights come back in
/// the device's memory. kInvalidArgument for wrong shapes, types, labels (named by row) or options;
/// kNonFinite for a NaN or infinity in x (named by row and column) or a loss that becomes one (the
/// epoch is named).
Result<TwoLayerResult> train_two_layer_classifier_ce_with_device(
    const std::shared_ptr<Device>& device, const Tensor& x, const Tensor& labels,
    std::int64_t classes, const TwoLayerOptions& options = {});

/// The same with the mean squared error against targets f32[N, K], over all N K elements. For a
/// classifier, pass one-hot rows.
Result<TwoLayerResult> train_two_layer_classifier_mse_with_device(
    const std::shared_ptr<Device>& device, const Tensor& x, const Tensor& targets,
    const TwoLayerOptions& options = {});

}  // namespace volta
