#include "train/two_layer.h"

#include <cmath>
#include <limits>

#include "base/rng.h"
#include "device/device_handle.h"
#include "device/tensor_ops.h"
#include "support/fault_device.h"
#include "train/helpers.h"

namespace volta {
namespace {

using test::expect_error;
using test::floats;
using test::ints;

// XOR: no single layer can learn it.
Tensor xor_inputs() { return floats(Shape(4, 2), {0, 0, 0, 1, 1, 0, 1, 1}); }
Tensor xor_labels() { return ints(Shape(4), {0, 1, 1, 0}); }
Tensor xor_one_hot() { return floats(Shape(4, 2), {1, 0, 0, 1, 0, 1, 1, 0}); }

// What the trained layers answer, by the tensor operations.
Result<Tensor> answers(Device& device, const TwoLayerResult& r, const Tensor& x) {
  VOLTA_TRY(const Tensor rows, x.clone_to(device.memory()));
  VOLTA_TRY(Tensor h, tensor_ops::matmul(device, rows, r.w1));
  VOLTA_TRY(h, tensor_ops::add(device, h, r.b1));
  VOLTA_TRY(h, tensor_ops::relu(device, h));
  VOLTA_TRY(Tensor y, tensor_ops::matmul(device, h, r.w2));
  return tensor_ops::add(device, y, r.b2);
}

TEST(TwoLayer, CrossEntropyLearnsXor) {
  const auto device = test::device(2);
  VOLTA_ASSERT_OK(const TwoLayerResult r,
                  train_two_layer_classifier_ce_with_device(
                      device, xor_inputs(), xor_labels(), 2,
                      {.hidden = 16, .learning_rate = 0.5f, .epochs = 400, .seed = 3}));
  ASSERT_EQ(r.losses.size(), 400u);
  EXPECT_NEAR(r.losses.front(), std::log(2.0), 0.3);
  EXPECT_LT(r.losses.back(), 0.05);
  VOLTA_ASSERT_OK(const Tensor y, answers(*device, r, xor_inputs()));
  VOLTA_ASSERT_OK(const Tensor best, tensor_ops::argmax(*device, y));
  EXPECT_EQ(test::values<std::int32_t>(best), test::values<std::int32_t>(xor_labels()));
}

TEST(TwoLayer, MeanSquaredErrorLearnsXor) {
  const auto device = test::device(1);
  VOLTA_ASSERT_OK(const TwoLayerResult r,
                  train_two_layer_classifier_mse_with_device(
                      device, xor_inputs(), xor_one_hot(),
                      {.hidden = 16, .learning_rate = 0.3f, .epochs = 800, .seed = 3}));
  EXPECT_LT(r.losses.back(), 0.01);
  VOLTA_ASSERT_OK(const Tensor y, answers(*device, r, xor_inputs()));
  const std::vector<float> got = test::values(y);
  const std::vector<float> wanted = test::values(xor_one_hot());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 0.3f);
}

// One update by hand: N = D = H = K = 1, all in closed form.
TEST(TwoLayer, OneUpdateIsGradientDescent) {
  const Tensor x = floats(Shape(1, 1), {2.0f});
  const Tensor target = floats(Shape(1, 1), {10.0f});
  const auto train = [&](std::int64_t epochs) {
    return *train_two_layer_classifier_mse_with_device(
        test::device(1), x, target,
        {.hidden = 1, .learning_rate = 0.01f, .epochs = epochs, .seed = 1});
  };
  const TwoLayerResult one = train(1);
  const TwoLayerResult two = train(2);
  // Undo the first update to find the start: b2 began at 0 and moved by -lr dL/dy.
  const double y_gradient = -static_cast<double>(test::values(one.b2)[0]) / 0.01;
  const double y = 10.0 + y_gradient / 2.0;
  EXPECT_NEAR(static_cast<double>(one.losses[0]), (y - 10.0) * (y - 10.0), 1e-4);
  const double w1 = static_cast<double>(test::values(one.w1)[0]);
  const double b1 = static_cast<double>(test::values(one.b1)[0]);
  const double w2 = static_cast<double>(test::values(one.w2)[0]);
  const double b2 = static_cast<double>(test::values(one.b2)[0]);
  const double after = std::max(0.0, 2.0 * w1 + b1) * w2 + b2;
  EXPECT_NEAR(static_cast<double>(two.losses[1]), (after - 10.0) * (after - 10.0), 1e-3);
}

TEST(TwoLayer, TheSameSeedGivesTheSameBitsOnAnyNumberOfThreads) {
  const auto train = [](int threads, std::uint64_t seed) {
    return *train_two_layer_classifier_ce_with_device(test::device(threads), xor_inputs(),
                                                      xor_labels(), 2, {.seed = seed});
  };
  const TwoLayerResult a = train(1, 1);
  EXPECT_EQ(train(3, 1).losses, a.losses);
  EXPECT_EQ(test::values(train(2, 1).w1), test::values(a.w1));
  EXPECT_NE(train(1, 2).losses, a.losses);
}

TEST(TwoLayer, WorksOnMemoryThatTheHostCannotTouch) {
  const auto device = std::make_shared<test::FaultyDevice>(test::cpu(1), false);
  VOLTA_ASSERT_OK(const DeviceHandle handle, DeviceHandle::wrap(device));
  VOLTA_ASSERT_OK(const Tensor x, handle.copy_to_device(xor_inputs()));
  VOLTA_ASSERT_OK(const TwoLayerResult r,
                  train_two_layer_classifier_ce_with_device(device, x, xor_labels(), 2));
  EXPECT_FALSE(r.w1.host_accessible());
  EXPECT_EQ(r.losses,
            train_two_layer_classifier_ce_with_device(test::cpu(1), xor_inputs(), xor_labels(), 2)
                ->losses);
  for (std::int64_t nth = 1;; ++nth) {
    device->faulty_memory().copy_fuse.arm(nth);
    const auto again =
        train_two_layer_classifier_ce_with_device(device, x, xor_labels(), 2, {.epochs = 2});
    device->faulty_memory().copy_fuse.arm(0);
    if (again) break;
    EXPECT_EQ(again.error().code(), ErrorCode::kDevice);
  }
  device->run_fuse.arm(3);
  expect_error(train_two_layer_classifier_mse_with_device(device, x, xor_one_hot()),
               ErrorCode::kDevice, "injected");
}

TEST(TwoLayer, RefusesWrongShapesAndTypes) {
  const auto device = test::device(1);
  const auto ce = [&](const Tensor& x, const Tensor& labels, std::int64_t classes) {
    return train_two_layer_classifier_ce_with_device(device, x, labels, classes);
  };
  const Tensor x = xor_inputs();
  const Tensor labels = xor_labels();
  const auto code = ErrorCode::kInvalidArgument;
  expect_error(ce(floats(Shape(4), {1, 2, 3, 4}), labels, 2), code, "x is f32[4]");
  expect_error(ce(floats(Shape(0, 2), {}), labels, 2), code, "x is f32[0, 2]");
  expect_error(ce(ints(Shape(4, 2), {1, 2, 3, 4, 5, 6, 7, 8}), labels, 2), code, "x is i32[4, 2]");
  expect_error(ce(x, ints(Shape(3), {0, 1, 0}), 2), code, "labels are i32[3]; they must be i32[4]");
  expect_error(ce(x, floats(Shape(4), {0, 1, 1, 0}), 2), code, "labels are f32[4]");
  expect_error(ce(x, ints(Shape(4), {0, 1, 2, 0}), 2), code,
               "the label of row 2 is 2; labels must be from 0 to 1");
  expect_error(ce(x, ints(Shape(4), {0, -1, 1, 0}), 2), code, "the label of row 1 is -1");
  expect_error(ce(x, labels, 0), code, "classes is 0");
  expect_error(ce(x, labels, std::int64_t{1} << 40), code, "classes is");
  const auto mse = [&](const Tensor& targets) {
    return train_two_layer_classifier_mse_with_device(device, x, targets);
  };
  expect_error(mse(floats(Shape(3, 1), {1, 2, 3})), code, "x has 4 rows, targets have 3");
  expect_error(mse(floats(Shape(4), {1, 2, 3, 4})), code, "targets is f32[4]");
}

TEST(TwoLayer, RefusesWhatIsNotFinite) {
  const auto device = test::device(1);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  expect_error(train_two_layer_classifier_ce_with_device(
                   device, floats(Shape(4, 2), {0, 0, 0, 1, 1, nan, 1, 1}), xor_labels(), 2),
               ErrorCode::kNonFinite, "x holds nan at row 2, column 1");
  expect_error(
      train_two_layer_classifier_mse_with_device(
          device, xor_inputs(),
          floats(Shape(4, 2), {1, 0, 0, -std::numeric_limits<float>::infinity(), 0, 1, 1, 0})),
      ErrorCode::kNonFinite, "targets holds -inf at row 1, column 1");
  // Finite data whose loss overflows.
  expect_error(train_two_layer_classifier_mse_with_device(device, floats(Shape(1, 1), {1e30f}),
                                                          floats(Shape(1, 1), {1e30f}),
                                                          {.hidden = 4, .epochs = 5}),
               ErrorCode::kNonFinite, "epoch 1: loss inf");
}

TEST(TwoLayer, RefusesOptionsThatCannotWork) {
  const auto with = [&](const TwoLayerOptions& options) {
    return train_two_layer_classifier_ce_with_device(test::device(1), xor_inputs(), xor_labels(), 2,
                                                     options);
  };
  const auto code = ErrorCode::kInvalidArgument;
  expect_error(with({.hidden = 0}), code, "hidden is 0");
  expect_error(with({.hidden = std::int64_t{1} << 40}), code, "hidden is");
  expect_error(with({.learning_rate = 0.0f}), code, "learning_rate is 0");
  expect_error(with({.learning_rate = NAN}), code, "learning_rate is nan");
  expect_error(with({.epochs = 0}), code, "epochs is 0");
  expect_error(train_two_layer_classifier_ce_with_device(nullptr, xor_inputs(), xor_labels(), 2),
               code, "no device");
}

}  // namespace
}  // namespace volta
