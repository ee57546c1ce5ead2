// Shape and DType: indexing, products, names.
#include "tensor/shape.h"

#include <gtest/gtest.h>

#include "tensor/dtype.h"
#include "tensor/view.h"

namespace volta {
namespace {

TEST(Shape, ReadsDimensionsFromBothEnds) {
  const Shape shape(2, 3, 5);
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape[-1], 5);
  EXPECT_EQ(shape[-3], 2);
  EXPECT_EQ(shape[3], 1);
  EXPECT_EQ(shape[-4], 1);
}

TEST(Shape, CountsRowsColumnsAndElements) {
  const Shape shape(2, 3, 5);
  EXPECT_EQ(shape.elements(), 30);
  EXPECT_EQ(shape.rows(), 6);
  EXPECT_EQ(shape.columns(), 5);
  EXPECT_EQ(shape.product(0, 2), 6);
  EXPECT_EQ(shape.product(2, 2), 1);
  const Shape scalar;
  EXPECT_EQ(scalar.rank(), 0);
  EXPECT_EQ(scalar.elements(), 1);
  EXPECT_EQ(scalar.rows(), 1);
  EXPECT_EQ(scalar.columns(), 1);
  EXPECT_EQ(Shape(7).rows(), 1);
  EXPECT_EQ(Shape(0).elements(), 0);
}

TEST(Shape, SetAndPushBackStayInsideTheRank) {
  Shape shape(2, 3);
  shape.set(-1, 4);
  shape.set(0, 9);
  shape.set(2, 77);
  shape.set(-3, 77);
  EXPECT_EQ(shape, Shape(9, 4));
  for (int i = 2; i < kMaxRank; ++i) EXPECT_TRUE(shape.push_back(i));
  EXPECT_FALSE(shape.push_back(1));
  EXPECT_EQ(shape.rank(), kMaxRank);
  EXPECT_EQ(shape[-1], 5);
}

TEST(Shape, ComparesRankAndDimensions) {
  EXPECT_EQ(Shape(2, 3), Shape(2, 3));
  EXPECT_NE(Shape(2, 3), Shape(3, 2));
  EXPECT_NE(Shape(2), Shape(2, 1));
}

TEST(DType, SizesAndNames) {
  const struct {
    DType dtype;
    std::int64_t size;
    std::string_view name;
    bool floating;
  } rows[] = {{DType::kF32, 4, "f32", true}, {DType::kBF16, 2, "bf16", true},
              {DType::kF16, 2, "f16", true}, {DType::kI8, 1, "i8", false},
              {DType::kU8, 1, "u8", false},  {DType::kI32, 4, "i32", false},
              {DType::kI64, 8, "i64", false}};
  for (const auto& row : rows) {
    EXPECT_EQ(dtype_size(row.dtype), row.size);
    EXPECT_EQ(dtype_name(row.dtype), row.name);
    EXPECT_EQ(is_float(row.dtype), row.floating);
  }
  const auto unknown = static_cast<DType>(250);
  EXPECT_EQ(dtype_size(unknown), 0);
  EXPECT_EQ(dtype_name(unknown), "?");
}

TEST(View, GivesTypedAccess) {
  float data[2] = {1.0f, 2.0f};
  const View view(data, {DType::kF32, Shape(2)});
  EXPECT_EQ(view.as<float>()[1], 2.0f);
}

}  // namespace
}  // namespace volta
