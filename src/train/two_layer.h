// The smallest training example: two dense layers with a ReLU between them, trained by gradient
// descent over the whole data set, on any device. It uses the same graph, autodiff and ops as the
// big models, and is small enough to check by hand.
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

/// The weights of y = relu(x w1 + b1) w2 + b2, and the loss during training.
struct TwoLayerResult {
  Tensor w1;                  ///< f32[D, H], initially uniform in +-1/sqrt(D).
  Tensor b1;                  ///< f32[H], initially zero.
  Tensor w2;                  ///< f32[H, K], initially uniform in +-1/sqrt(H).
  Tensor b2;                  ///< f32[K], initially zero.
  std::vector<float> losses;  ///< Mean loss before each update.
};

/// Trains a classifier of `classes` classes with softmax and cross entropy.
/// The arguments are x f32[N, D] and labels i32[N] in [0, classes), on the host or on the device.
/// The weights are returned in the device's memory. kInvalidArgument for wrong shapes, types,
/// labels (named by row) or options. kNonFinite for a NaN or infinity in x (named by row and
/// column) and for a loss that becomes non-finite (the epoch is named).
Result<TwoLayerResult> train_two_layer_classifier_ce_with_device(
    const std::shared_ptr<Device>& device, const Tensor& x, const Tensor& labels,
    std::int64_t classes, const TwoLayerOptions& options = {});

/// The same with the mean squared error against targets f32[N, K], over all N K elements. For a
/// classifier, pass one-hot rows.
Result<TwoLayerResult> train_two_layer_classifier_mse_with_device(
    const std::shared_ptr<Device>& device, const Tensor& x, const Tensor& targets,
    const TwoLayerOptions& options = {});

}  // namespace volta
