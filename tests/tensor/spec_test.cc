// TensorSpec: texts, and sizes from outside that must be refused before anything is computed.
#include "tensor/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <vector>

namespace volta {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

TEST(Spec, ToString) {
  EXPECT_EQ(to_string(Shape()), "[]");
  EXPECT_EQ(to_string(Shape(2, 3, 4)), "[2, 3, 4]");
  EXPECT_EQ(to_string(TensorSpec{DType::kBF16, Shape(5)}), "bf16[5]");
}

TEST(Spec, PanelsAreFilledUp) {
  const TensorSpec spec{DType::kBF16, Shape(7, 33), {Packing::kPanels, false, 16}};
  EXPECT_EQ(to_string(spec), "bf16[7, 33] in panels of 16");
  EXPECT_EQ(spec.bytes(), 3 * 7 * 16 * 2);
  const TensorSpec turned{DType::kF32, Shape(33, 7), {Packing::kPanels, true, 32}};
  EXPECT_EQ(to_string(turned), "f32[33, 7] in transposed panels of 32");
  EXPECT_EQ(turned.bytes(), 2 * 7 * 32 * 4);
  EXPECT_NE(spec, (TensorSpec{DType::kBF16, Shape(7, 33)}));
  EXPECT_TRUE(check_spec(spec));
}

TEST(Spec, OnlyMatricesHavePanels) {
  const auto refused = [](const TensorSpec& spec) {
    const Status status = check_spec(spec);
    return !status && status.error().message().find("only a matrix") != std::string::npos;
  };
  EXPECT_TRUE(refused({DType::kF32, Shape(2, 3, 4), {Packing::kPanels, false, 16}}));
  EXPECT_TRUE(refused({DType::kF32, Shape(4), {Packing::kPanels, false, 16}}));
  EXPECT_TRUE(refused({DType::kF32, Shape(4, 4), {Packing::kPanels, false, 0}}));
  EXPECT_TRUE(refused({DType::kF32, Shape(4, 4), {Packing::kPanels, true, 5000}}));
  EXPECT_TRUE(refused({DType::kBF16, Shape(4, 4), {Packing::kPanels, true, 16, 0}}));
  EXPECT_TRUE(refused({DType::kBF16, Shape(4, 4), {Packing::kPanels, true, 16, 9}}));
  const Status huge =
      check_spec({DType::kU8, Shape(kMaxTensorBytes, 1), {Packing::kPanels, false, 16}});
  ASSERT_FALSE(huge);
  EXPECT_THAT(huge.error().message(), HasSubstr("larger than the largest tensor"));
}

TEST(Spec, OnlyMatricesOfF32AreQuantized) {
  const auto panels = [](std::int32_t group, std::int32_t block) {
    return Encoding{Packing::kPanels, true, 16, group, Quant::kInt8, block};
  };
  EXPECT_TRUE(check_spec({DType::kF32, Shape(4, 64), panels(4, 32)}));
  for (const TensorSpec& spec : {TensorSpec{DType::kBF16, Shape(4, 64), panels(4, 32)},
                                 TensorSpec{DType::kF32, Shape(2, 4, 64), panels(4, 32)},
                                 TensorSpec{DType::kF32, Shape(4, 64), panels(4, 33)},
                                 TensorSpec{DType::kF32, Shape(4, 64), panels(2, 32)}}) {
    const Status status = check_spec(spec);
    ASSERT_FALSE(status) << to_string(spec);
    EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.error().message(), HasSubstr("what is quantised is an f32 matrix"));
  }
  // One column of the largest tensor would be padded to a panel of many.
  const Status huge = check_spec({DType::kF32, Shape(1, kMaxTensorBytes / 4), panels(4, 32)});
  ASSERT_FALSE(huge);
  EXPECT_THAT(huge.error().message(), HasSubstr("larger than the largest tensor"));
}

TEST(Spec, MakeShapeChecksRankAndSign) {
  const std::vector<std::int64_t> good = {4, 0, 2};
  const auto shape = make_shape(good);
  ASSERT_TRUE(shape);
  EXPECT_EQ(*shape, Shape(4, 0, 2));
  ASSERT_TRUE(make_shape({}));

  const std::vector<std::int64_t> deep(7, 1);
  const auto too_deep = make_shape(deep);
  ASSERT_FALSE(too_deep);
  EXPECT_EQ(too_deep.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(too_deep.error().message(), HasSubstr("at most 6 dimensions, not 7"));

  const std::vector<std::int64_t> negative = {3, -1};
  const auto bad = make_shape(negative);
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().message(), HasSubstr("[3, -1] has a negative dimension"));
}

TEST(Spec, CheckSpecTakesTheLargestTensorAndNothingAbove) {
  EXPECT_TRUE(check_spec({DType::kU8, Shape(kMaxTensorBytes)}));
  EXPECT_FALSE(check_spec({DType::kU8, Shape(kMaxTensorBytes + 1)}));
  EXPECT_FALSE(check_spec({DType::kF32, Shape(kMaxTensorBytes / 4 + 1)}));
  EXPECT_TRUE(check_spec({DType::kI64, Shape()}));
}

TEST(Spec, CheckSpecSurvivesOverflow) {
  const auto big = check_spec({DType::kF32, Shape(kHuge, kHuge, kHuge)});
  ASSERT_FALSE(big);
  EXPECT_THAT(big.error().message(), HasSubstr("larger than the largest tensor"));
  EXPECT_FALSE(check_spec({DType::kF32, Shape(0, kHuge, kHuge)}));
  EXPECT_FALSE(check_spec({DType::kF32, Shape(kHuge, kHuge, 0)}));
  const auto negative = check_spec({DType::kF32, Shape(2, -1)});
  ASSERT_FALSE(negative);
  EXPECT_THAT(negative.error().message(), HasSubstr("f32[2, -1] has a negative dimension"));
}

// Whatever check_spec accepts has exact products below the limit, computed here in 128 bits.
RC_GTEST_PROP(SpecProperty, AcceptedSpecsNeverOverflow, ()) {
  const int rank = *rc::gen::inRange(0, kMaxRank + 1);
  Shape shape;
  for (int i = 0; i < rank; ++i) {
    const int bits = *rc::gen::inRange(0, 63);
    shape.push_back(*rc::gen::inRange<std::int64_t>(-1, (std::int64_t{1} << bits) + 1));
  }
  const TensorSpec spec = {*rc::gen::element(DType::kU8, DType::kF32, DType::kI64), shape};
  bool negative = false;
  long double elements = 1;
  for (int i = 0; i < rank; ++i) {
    negative = negative || shape[i] < 0;
    elements *= static_cast<long double>(shape[i] == 0 ? 1 : shape[i]);
  }
  const long double bytes = elements * static_cast<long double>(dtype_size(spec.dtype));
  const bool fits = !negative && bytes <= static_cast<long double>(kMaxTensorBytes);
  RC_ASSERT(check_spec(spec).has_value() == fits);
  if (fits) RC_ASSERT(spec.bytes() >= 0 && spec.bytes() <= kMaxTensorBytes);
}

}  // namespace
}  // namespace volta
