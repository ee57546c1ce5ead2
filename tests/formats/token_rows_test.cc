#include "formats/token_rows.h"

#include <fstream>

#include "device/helpers.h"
#include "formats/safetensors.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::expect_error;

class TokenRowsTest : public testing::Test {
 protected:
  template <typename T>
  void put(const Shape& shape, const std::vector<T>& ids, const std::string& name = "input_ids") {
    ASSERT_TRUE(write_safetensors(path_, {{name, *Tensor::from_values<T>(shape, ids)}}));
  }
  void expect_refusal(const std::string& words, ErrorCode code = ErrorCode::kInvalidFile) {
    const auto rows = load_token_rows(path_, 7, 2);
    expect_error(rows, code, path_);
    expect_error(rows, code, words);
  }

  test::TempDir dir_;
  std::string path_ = dir_.file("ids.safetensors");
};

TEST_F(TokenRowsTest, ReadsBothIntegerTypes) {
  const std::vector<std::int32_t> ids = {1, 2, 3, 4, 5, 6};
  put<std::int32_t>(Shape(2, 3), ids);
  const auto narrow = load_token_rows(path_, 7, 2);
  put<std::int64_t>(Shape(2, 3), {1, 2, 3, 4, 5, 6});
  const auto wide = load_token_rows(path_, 7, 3);
  for (const auto& rows : {narrow, wide}) {
    ASSERT_TRUE(rows) << rows.error().message();
    EXPECT_EQ(rows->ids, ids);
    EXPECT_EQ(rows->count, 2);
    EXPECT_EQ(rows->length, 3);
  }
}

TEST_F(TokenRowsTest, SaysWhatIsWrong) {
  expect_refusal("ids.safetensors", ErrorCode::kNotFound);
  put<std::int64_t>(Shape(2, 3), {1, 2, 3, 4, 7, 6});
  expect_refusal("input_ids[1, 1] is 7; ids must be from 0 to 6");
  put<std::int32_t>(Shape(1, 2), {-1, 2});
  expect_refusal("input_ids[0, 0] is -1");
  put<std::int64_t>(Shape(1, 2), {3, std::int64_t{1} << 32});  // 0 in 32 bits.
  expect_refusal("input_ids[0, 1] is 4294967296");
  put<std::int64_t>(Shape(1, 2), {1, 2}, "ids");
  expect_refusal("no tensor 'input_ids'", ErrorCode::kNotFound);
  put<std::int64_t>(Shape(4), {1, 2, 3, 4});
  expect_refusal("i64[4]");
  put<std::int64_t>(Shape(2, 1), {1, 2});
  expect_refusal("i64[2, 1]; it must be i64 or i32 [rows, tokens], at least one row of length 2");
  put<std::int64_t>(Shape(0, 3), {});
  expect_refusal("i64[0, 3]");
  put<float>(Shape(1, 2), {1, 2});
  expect_refusal("f32[1, 2]");
  std::ofstream(path_) << "not safetensors";
  expect_refusal("");
}

}  // namespace
}  // namespace volta
