// Tensor: creation, typed access, windows, reshapes and copies, with every refusal.
#include "tensor/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <vector>

#include "tensor/fake_memory.h"

namespace volta {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor counting(const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(shape.elements()));
  std::iota(values.begin(), values.end(), 0.0f);
  return *Tensor::from_values<float>(shape, values);
}

TEST(Tensor, DefaultIsEmpty) {
  const Tensor tensor;
  EXPECT_EQ(tensor.shape(), Shape(0));
  EXPECT_EQ(tensor.bytes(), 0);
  EXPECT_TRUE(tensor.host_accessible());
  EXPECT_EQ(tensor.buffer(), nullptr);
  EXPECT_EQ(tensor.view().data, nullptr);
  const auto values = tensor.values<float>();
  ASSERT_TRUE(values);
  EXPECT_TRUE(values->empty());
  Tensor copy = tensor;
  EXPECT_TRUE(copy.write<float>({}));
  EXPECT_TRUE(copy.read<float>({}));
  EXPECT_TRUE(tensor.clone_to());
}

TEST(Tensor, FromValuesHoldsACopy) {
  const Tensor tensor = counting(Shape(2, 3));
  EXPECT_EQ(tensor.spec(), (TensorSpec{DType::kF32, Shape(2, 3)}));
  EXPECT_EQ(tensor.elements(), 6);
  EXPECT_EQ(tensor.bytes(), 24);
  EXPECT_THAT(*tensor.values<float>(), ElementsAre(0, 1, 2, 3, 4, 5));
  const auto wrong = Tensor::from_values<float>(Shape(4), std::array{1.0f});
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message(), HasSubstr("f32[4] takes 16 bytes, not 4"));
}

TEST(Tensor, EveryElementTypeHasTypedAccess) {
  EXPECT_EQ((*Tensor::from_values<std::int8_t>(Shape(1), std::array<std::int8_t, 1>{-3}))
                .values<std::int8_t>()
                ->front(),
            -3);
  EXPECT_EQ((*Tensor::from_values<std::uint8_t>(Shape(1), std::array<std::uint8_t, 1>{200}))
                .values<std::uint8_t>()
                ->front(),
            200);
  EXPECT_EQ(
      (*Tensor::from_values<std::int32_t>(Shape(1), std::array{7})).values<std::int32_t>()->front(),
      7);
  EXPECT_EQ((*Tensor::from_values<std::int64_t>(Shape(1), std::array<std::int64_t, 1>{9}))
                .values<std::int64_t>()
                ->front(),
            9);
  const auto half = Tensor::zeros({DType::kBF16, Shape(3)});
  ASSERT_TRUE(half);
  EXPECT_THAT(typed_span<const std::uint16_t>(*half->host_bytes()), ElementsAre(0, 0, 0));
}

TEST(Tensor, WrongTypeIsAnError) {
  Tensor tensor = counting(Shape(2));
  const auto values = tensor.values<std::int32_t>();
  ASSERT_FALSE(values);
  EXPECT_THAT(values.error().message(), HasSubstr("f32[2] does not hold i32 elements"));
  EXPECT_FALSE(tensor.mutable_values<std::int64_t>());
  EXPECT_FALSE(tensor.write<std::int32_t>(std::array{1, 2}));
  std::array<std::int32_t, 2> out{};
  EXPECT_FALSE(tensor.read<std::int32_t>(out));
}

TEST(Tensor, SizesAreCheckedBeforeAllocation) {
  auto memory = std::make_shared<FakeMemory>();
  constexpr auto kHuge = std::numeric_limits<std::int64_t>::max();
  for (const Shape& shape : {Shape(kHuge, kHuge), Shape(-1), Shape(0, kHuge)}) {
    const auto tensor = Tensor::empty({DType::kF32, shape}, memory);
    ASSERT_FALSE(tensor);
    EXPECT_EQ(tensor.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_FALSE(Tensor::zeros({DType::kF32, shape}, memory));
  }
  EXPECT_EQ(memory->live, 0);
  memory->fail_allocate = true;
  EXPECT_EQ(Tensor::zeros({DType::kF32, Shape(4)}, memory).error().code(), ErrorCode::kOutOfMemory);
}

TEST(Tensor, WritesAndReadsWholeTensors) {
  Tensor tensor = *Tensor::zeros({DType::kF32, Shape(3)});
  EXPECT_THAT(*tensor.values<float>(), Each(0.0f));
  ASSERT_TRUE(tensor.write<float>(std::array{1.0f, 2.0f, 3.0f}));
  std::array<float, 3> back{};
  ASSERT_TRUE(tensor.read<float>(back));
  EXPECT_THAT(back, ElementsAre(1, 2, 3));
  (*tensor.mutable_values<float>())[1] = 9.0f;
  EXPECT_THAT(*tensor.values<float>(), ElementsAre(1, 9, 3));
  std::array<float, 2> small{};
  const auto status = tensor.read<float>(small);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message(), HasSubstr("f32[3] holds 12 bytes"));
}

TEST(Tensor, ReshapeSharesMemory) {
  const Tensor tensor = counting(Shape(2, 3));
  auto flat = tensor.reshape(Shape(6));
  ASSERT_TRUE(flat);
  (*flat->mutable_values<float>())[5] = 50.0f;
  EXPECT_EQ((*tensor.values<float>())[5], 50.0f);
  const auto wrong = tensor.reshape(Shape(5));
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message(),
              HasSubstr("f32[2, 3] has 6 elements and cannot become [5] with 5"));
  EXPECT_FALSE(tensor.reshape(Shape(-2, -3)));
}

TEST(Tensor, SliceIsAWindow) {
  const Tensor tensor = counting(Shape(4, 2));
  const auto middle = tensor.slice(1, 3);
  ASSERT_TRUE(middle);
  EXPECT_EQ(middle->shape(), Shape(2, 2));
  EXPECT_EQ(middle->offset(), 8);
  EXPECT_THAT(*middle->values<float>(), ElementsAre(2, 3, 4, 5));
  const auto inner = middle->slice(1, 2);
  ASSERT_TRUE(inner);
  EXPECT_THAT(*inner->values<float>(), ElementsAre(4, 5));
  EXPECT_EQ(inner->view().data, tensor.buffer()->at_offset(16));
  EXPECT_EQ(tensor.slice(2, 2)->bytes(), 0);
  EXPECT_FALSE(tensor.slice(-1, 2));
  EXPECT_FALSE(tensor.slice(3, 2));
  EXPECT_FALSE(counting(Shape()).slice(0, 1));
  const auto outside = tensor.slice(0, 5);
  ASSERT_FALSE(outside);
  EXPECT_THAT(outside.error().message(), HasSubstr("rows [0, 5) are not part of f32[4, 2]"));
}

TEST(Tensor, FromBufferChecksRangeAndAlignment) {
  auto buffer = std::make_shared<DeviceBuffer>(*DeviceBuffer::allocate(host_memory(), 64));
  const TensorSpec spec = {DType::kF32, Shape(4)};
  const auto tensor = Tensor::from_buffer(buffer, 48, spec);
  ASSERT_TRUE(tensor);
  EXPECT_EQ(tensor->offset(), 48);
  EXPECT_EQ(tensor->buffer(), buffer);
  EXPECT_FALSE(Tensor::from_buffer(buffer, 52, spec));
  EXPECT_FALSE(Tensor::from_buffer(buffer, -4, spec));
  EXPECT_FALSE(Tensor::from_buffer(buffer, 0, {DType::kF32, Shape(17)}));
  EXPECT_FALSE(Tensor::from_buffer(buffer, 0, {DType::kF32, Shape(-1)}));
  const auto crooked = Tensor::from_buffer(buffer, 2, spec);
  ASSERT_FALSE(crooked);
  EXPECT_THAT(crooked.error().message(), HasSubstr("not a multiple of the element size"));
  const auto nothing = Tensor::from_buffer(nullptr, 0, spec);
  ASSERT_FALSE(nothing);
  EXPECT_THAT(nothing.error().message(), HasSubstr("needs a buffer"));
}

TEST(Tensor, DeviceMemoryGoesThroughCopies) {
  auto memory = std::make_shared<FakeMemory>();
  const Tensor host = counting(Shape(5));
  const auto device = host.clone_to(memory);
  ASSERT_TRUE(device);
  EXPECT_FALSE(device->host_accessible());
  EXPECT_FALSE(device->values<float>());
  const auto other = device->clone_to(memory);
  ASSERT_TRUE(other);
  EXPECT_NE(other->view().data, device->view().data);
  const auto back = other->clone_to();
  ASSERT_TRUE(back);
  EXPECT_THAT(*back->values<float>(), ElementsAre(0, 1, 2, 3, 4));
  memory->fail_copy = true;
  EXPECT_FALSE(host.clone_to(memory));
  EXPECT_FALSE(device->clone_to());
  EXPECT_FALSE(device->clone_to(memory));
  EXPECT_FALSE(Tensor::zeros({DType::kU8, Shape(3)}, memory));
  EXPECT_FALSE(host.clone_to(nullptr));
}

TEST(Tensor, ZerosReachAllOfALargeDeviceTensor) {
  auto memory = std::make_shared<FakeMemory>();
  const auto tensor = Tensor::zeros({DType::kU8, Shape((2 << 20) + 5)}, memory);
  ASSERT_TRUE(tensor);
  const auto host = tensor->clone_to();
  ASSERT_TRUE(host);
  const auto values = *host->values<std::uint8_t>();
  EXPECT_EQ(std::ranges::count(values, 0), std::ssize(values));
}

TEST(Tensor, AnEncodedTensorIsUsedAsAWhole) {
  Tensor tensor = *Tensor::zeros({DType::kF32, Shape(3, 5), {Packing::kPanels, false, 16}});
  EXPECT_EQ(tensor.bytes(), 3 * 16 * 4);
  EXPECT_EQ(tensor.view().encoding, tensor.spec().encoding);
  const auto refused = [](const auto& result) {
    return !result && result.error().code() == ErrorCode::kInvalidArgument &&
           result.error().message().find("only be used as a whole") != std::string::npos;
  };
  std::vector<float> values(15);
  EXPECT_TRUE(refused(tensor.values<float>()));
  EXPECT_TRUE(refused(tensor.mutable_values<float>()));
  EXPECT_TRUE(refused(tensor.write(std::span<const float>(values))));
  EXPECT_TRUE(refused(tensor.read(std::span<float>(values))));
  EXPECT_TRUE(refused(tensor.reshape(Shape(15))));
  EXPECT_TRUE(refused(tensor.slice(0, 1)));
  const auto copy = tensor.clone_to();
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->spec(), tensor.spec());
}

}  // namespace
}  // namespace volta
