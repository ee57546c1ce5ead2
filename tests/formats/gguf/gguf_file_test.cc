#include "formats/gguf/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <limits>

#include "device/helpers.h"
#include "formats/gguf/gguf_bytes.h"
#include "formats/gguf/gguf_name.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::expect_error;
using test::GgufBytes;

void refuse(const GgufBytes& bytes, const std::string& text,
            ErrorCode code = ErrorCode::kInvalidFile) {
  expect_error(bytes.parse(), code, text);
}
GgufBytes file() { return {}; }

TEST(GgufFile, IsRead) {
  const GgufBytes bytes = file()
                              .header(2, 2)
                              .text("b")
                              .u32(8)
                              .text("text")
                              .text("a")
                              .u32(9)
                              .u32(4)
                              .u64(2)
                              .u32(7)
                              .u32(7)
                              .tensor("w", 3, 32)
                              .text("m")
                              .u32(2)
                              .u64(2)
                              .u64(3)
                              .u32(1)
                              .u64(0)
                              .data(32 + 12);
  const auto parsed = bytes.parse();
  ASSERT_TRUE(parsed) << parsed.error().message();
  EXPECT_EQ(parsed->version(), 3u);
  ASSERT_EQ(parsed->tensors().size(), 2u);
  const GgufTensor& m = parsed->tensors()[0];
  EXPECT_EQ(m.name, "m");
  EXPECT_EQ(m.shape, Shape(3, 2));  // The file lists the innermost axis first.
  EXPECT_EQ(m.type, GgmlType::kF16);
  EXPECT_EQ(m.bytes, 12);
  EXPECT_EQ(parsed->tensors()[1].offset - m.offset, 32);
  EXPECT_EQ(parsed->metadata()[0].key, "a");
  EXPECT_EQ(*parsed->get_int("a", 0, 9), 7);
  EXPECT_EQ(*parsed->get_string("b"), "text");
  EXPECT_EQ(parsed->find("c"), nullptr);
  EXPECT_EQ(parsed->find_tensor("x"), nullptr);
  expect_error(parsed->map(m), ErrorCode::kInvalidArgument, "is not mapped");
  parsed->release(m);  // Nothing to give back.
  EXPECT_TRUE(file().header(0, 0, 2).parse());
}

TEST(GgufFile, OtherFilesAreRefusedByName) {
  const auto unsupported = ErrorCode::kUnsupported;
  refuse(file(), "4 bytes are claimed, 0 are left");
  refuse(file().raw("GGML").u32(3), "this is no GGUF file");
  refuse(file().raw("GGUF").u32(3u << 24).u64(0).u64(0), "big-endian", unsupported);
  refuse(file().header(0, 0, 1), "GGUF version 1; Volta reads 2 and 3", unsupported);
  refuse(file().header(0, 0, 4), "GGUF version 4", unsupported);
  refuse(file().header(0, 1).text("split.count").u32(2).number<std::uint16_t>(3),
         "one of 3 parts of a model; join them first", unsupported);
  refuse(file().header(1, 0).tensor("w", 256, 0, 23).data(300),
         "tensor 'w' is of type IQ4_XS; Volta reads F32, F16, BF16", unsupported);
  refuse(file().header(1, 0).tensor("w", 1, 0, 99).data(300), "of type number 99", unsupported);
}

TEST(GgufFile, CountsAreCheckedBeforeAnythingIsMadeOfThem) {
  constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();
  refuse(file().header(kHuge, 0), "18446744073709551615 tensors are claimed, 0 bytes are left");
  refuse(file().header(0, kHuge), "18446744073709551615 metadata keys are claimed");
  refuse(file().header(2, 0).raw(std::string(63, 'x')), "2 tensors are claimed, 63 bytes");
  refuse(file().header(0, 1).u64(kHuge).raw("12345678"), "bytes are claimed, 8 are left");
  refuse(file().header(0, 1).text("k").u32(8).u64(kHuge).raw("12345"), "5 are left");
  for (const std::uint32_t type : {0u, 2u, 4u, 10u, 8u, 9u}) {
    refuse(file().header(0, 1).text("k").u32(9).u32(type).u64(kHuge / 4).u64(0),
           "an array claims 4611686018427387903 values, 8 bytes are left");
  }
  // There may be room, in a file that is mostly a hole.
  refuse(file()
             .header(0, 2)
             .text("a")
             .u32(9)
             .u32(0)
             .u64(9 << 20)
             .data(9 << 20, 1)
             .text("b")
             .u32(9)
             .u32(0)
             .u64(9 << 20)
             .data(9 << 20, 1),
         "its arrays have more than 16777216 values");
  refuse(file().header(0, 1).text("k").u32(13).u64(0), "no value type 13");
  refuse(file().header(0, 1).text("k").u32(9).u32(13).u64(0), "no value type 13");
  refuse(file().header(0, 1).text("").u32(0).raw("1234"), "a metadata key is empty");
  refuse(file().header(0, 1).text("\xFF").u32(0).raw("1234"), "not UTF-8");
  refuse(file().header(0, 1).text(std::string(5000, 'k')).u32(0).raw("1"), "too long");
  refuse(file().header(0, 2).text("k").u32(0).raw("1").text("k").u32(0).raw("1").data(20),
         "metadata key 'k' is there twice");
  GgufBytes nested = file().header(0, 1).text("k").u32(9);
  for (int i = 0; i < 20; ++i) nested.u32(9).u64(1);
  refuse(nested, "arrays nest deeper than 8");
  GgufBytes fine = file().header(0, 1).text("k").u32(9);
  for (int i = 0; i < 7; ++i) fine.u32(9).u64(1);
  EXPECT_TRUE(fine.u32(0).u64(2).raw("ab").parse());
}

TEST(GgufFile, EveryPrefixIsRefused) {
  const GgufBytes whole =
      file().header(1, 1).text("k").u32(9).u32(8).u64(1).text("v").tensor("w", 8, 0).data(32);
  ASSERT_TRUE(whole.parse());
  for (std::size_t size = 0; size < whole.bytes().size(); ++size) {
    EXPECT_FALSE(GgufBytes().raw(whole.bytes().substr(0, size)).parse()) << size;
  }
}

TEST(GgufFile, TensorsMustFitTheFileAndEachOther) {
  const auto one = [](std::uint64_t size, std::uint64_t offset, std::uint32_t type = 0) {
    return file().header(1, 0).tensor("w", size, offset, type).data(64);
  };
  EXPECT_TRUE(one(16, 0).parse());
  refuse(one(17, 0), "takes 68 bytes from byte 64, the file has 128");
  refuse(one(16, 32), "takes 64 bytes from byte 96");
  refuse(one(8, 4), "begins at byte 4 of the data, no multiple of 32");
  refuse(one(0, 0), "does not fit the file");
  refuse(one(33, 0, 8), "is not made of whole blocks");
  refuse(one(std::uint64_t{1} << 62, 0), "does not fit the file");
  refuse(one(1, std::uint64_t{1} << 63), "does not fit the file");
  refuse(file().header(1, 0).text("w").u32(5).raw(std::string(60, '\0')), "has 5 dimensions");
  refuse(file().header(1, 0).text("w").u32(0).raw(std::string(60, '\0')), "has 0 dimensions");
  refuse(file().header(1, 0).text("").u32(1).raw(std::string(60, '\0')), "a tensor name is empty");
  // A product of dimensions that wraps around to 4.
  refuse(file()
             .header(1, 0)
             .text("w")
             .u32(3)
             .u64((std::uint64_t{1} << 32) + 1)
             .u64(std::uint64_t{1} << 32)
             .u64(4)
             .u32(0)
             .u64(0)
             .data(64),
         "does not fit the file");
  refuse(file().header(2, 0).tensor("a", 9, 0).tensor("b", 1, 32).data(64), "overlaps another one");
  refuse(file().header(2, 0).tensor("a", 8, 0).tensor("a", 8, 32).data(64),
         "tensor 'a' is there twice");
}

TEST(GgufFile, AlignmentIsAPowerOfTwo) {
  const auto aligned = [](std::uint32_t alignment, std::uint64_t offset) {
    return file()
        .header(1, 1)
        .text("general.alignment")
        .u32(4)
        .u32(alignment)
        .tensor("w", 4, offset)
        .data(32, 8);
  };
  EXPECT_TRUE(aligned(8, 8).parse());
  refuse(aligned(16, 8), "no multiple of 16");
  refuse(aligned(24, 0), "general.alignment is 24, no power of two");
  refuse(aligned(0, 0), "is not an integer from 1 to");
}

TEST(GgufFile, ValuesHaveTypes) {
  test::GgufSample sample;
  GgufMetadata& m = sample.metadata;
  m.add_u32("u32", 5);
  m.add_f32("f32", 0.5f);
  m.add_f32("nan", std::numeric_limits<float>::quiet_NaN());
  m.add_bool("yes", true);
  m.add_string("text", "words");
  m.add_string("bad", "\xC3");
  m.add_strings("texts", std::vector<std::string>{"a", "", "c"});
  m.add_strings("bad_texts", std::vector<std::string>{"a", "\xFF"});
  m.add_ints("same", std::vector<std::int32_t>{3, 3, 3});
  m.add_ints("mixed", std::vector<std::int32_t>{3, 4});
  m.add_ints("none", {});
  m.add_floats("floats", std::vector<float>{1.5f, 1.5f});
  const auto file = sample.parse();
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(*file->get_int("u32", 5, 5), 5);
  EXPECT_EQ(*file->get_int("same", 0, 9), 3);
  EXPECT_EQ(*file->get_int_or("absent", 8, 0, 9), 8);
  EXPECT_EQ(*file->get_int_or("u32", 8, 0, 9), 5);
  EXPECT_EQ(*file->get_float("f32"), 0.5);
  EXPECT_EQ(*file->get_float("u32"), 5.0);
  EXPECT_EQ(*file->get_float("floats"), 1.5);
  EXPECT_EQ(*file->get_float_or("absent", 2.0), 2.0);
  EXPECT_TRUE(*file->get_bool_or("yes", false));
  EXPECT_TRUE(*file->get_bool_or("absent", true));
  EXPECT_EQ(*file->get_string_or("absent", "x"), "x");
  EXPECT_EQ(*file->get_strings("texts"), (std::vector<std::string_view>{"a", "", "c"}));
  EXPECT_TRUE(file->get_strings("absent")->empty());
  EXPECT_EQ(*file->get_ints("mixed"), (std::vector<std::int32_t>{3, 4}));
  EXPECT_TRUE(file->get_ints("absent")->empty());
  EXPECT_EQ(*file->get_floats("floats"), (std::vector<float>{1.5f, 1.5f}));
  EXPECT_TRUE(file->get_floats("absent")->empty());
  const auto invalid = ErrorCode::kInvalidFile;
  expect_error(file->get_int("u32", 6, 9), invalid, "'u32' is not an integer from 6 to 9");
  expect_error(file->get_int("absent", 0, 9), invalid, "'absent' is missing");
  for (const char* key : {"mixed", "none", "text", "texts", "f32"}) {
    expect_error(file->get_int(key, 0, 9), invalid, "is not an integer");
  }
  expect_error(file->get_float("nan"), invalid, "'nan' is not a finite number");
  expect_error(file->get_float("absent"), invalid, "is missing");
  expect_error(file->get_bool_or("u32", true), invalid, "'u32' is not a boolean");
  expect_error(file->get_string("u32"), invalid, "is not a string");
  expect_error(file->get_string_or("bad", ""), invalid, "'bad' is not UTF-8");
  expect_error(file->get_strings("same"), invalid, "is not an array of strings");
  expect_error(file->get_strings("bad_texts"), invalid, "is not UTF-8 at position 1");
  expect_error(file->get_floats("same"), invalid, "is not an array of 32-bit floats");
  expect_error(file->get_ints("floats"), invalid, "is not an array of 32-bit integers");
}

TEST(GgufFile, IntegersOfEveryWidthAreIntegers) {
  const GgufBytes bytes = file()
                              .header(0, 8)
                              .text("a")
                              .u32(0)
                              .number<std::uint8_t>(200)
                              .text("b")
                              .u32(1)
                              .number<std::int8_t>(-2)
                              .text("c")
                              .u32(2)
                              .number<std::uint16_t>(60000)
                              .text("d")
                              .u32(3)
                              .number<std::int16_t>(-3)
                              .text("e")
                              .u32(5)
                              .number<std::int32_t>(-4)
                              .text("f")
                              .u32(10)
                              .u64(std::numeric_limits<std::uint64_t>::max())
                              .text("g")
                              .u32(11)
                              .number<std::int64_t>(-5)
                              .text("h")
                              .u32(12)
                              .number<double>(0.25);
  const auto parsed = bytes.parse();
  ASSERT_TRUE(parsed) << parsed.error().message();
  constexpr std::int64_t kMin = -1000, kMax = 1 << 20;
  EXPECT_EQ(*parsed->get_int("a", kMin, kMax), 200);
  EXPECT_EQ(*parsed->get_int("b", kMin, kMax), -2);
  EXPECT_EQ(*parsed->get_int("c", kMin, kMax), 60000);
  EXPECT_EQ(*parsed->get_int("d", kMin, kMax), -3);
  EXPECT_EQ(*parsed->get_int("e", kMin, kMax), -4);
  EXPECT_EQ(*parsed->get_int("g", kMin, kMax), -5);
  EXPECT_EQ(*parsed->get_float("h"), 0.25);
  expect_error(parsed->get_int("f", kMin, kMax), ErrorCode::kInvalidFile, "is not an integer from");
}

TEST(GgufFile, IsMapped) {
  const test::TempDir dir;
  std::ofstream(dir.file("m.gguf"), std::ios::binary)
      << file().header(1, 0).tensor("w", 2, 0).data(8).bytes();
  const GgufFile opened = test::open_gguf(dir.file("m.gguf"));
  const auto mapped = opened.map(opened.tensors()[0]);
  ASSERT_TRUE(mapped) << mapped.error().message();
  EXPECT_EQ(mapped->bytes(), 8);
  opened.release(opened.tensors()[0]);
  EXPECT_EQ(opened.path(), dir.file("m.gguf"));
  expect_error(GgufFile::open(dir.file("other.gguf")), ErrorCode::kNotFound, "other.gguf");
  EXPECT_TRUE(is_gguf_path(dir.file("m.gguf")));
  EXPECT_TRUE(is_gguf_path("missing.gguf"));
  EXPECT_FALSE(is_gguf_path("model"));
  std::filesystem::create_directory(dir.file("folder.gguf"));
  EXPECT_FALSE(is_gguf_path(dir.file("folder.gguf")));
}

TEST(GgufFile, IsRecognisedByItsNameOrItsFirstBytes) {
  const test::TempDir dir;
  const auto is_gguf = [&](const std::string& name, const std::string& bytes) {
    std::ofstream(dir.file(name), std::ios::binary) << bytes;
    return is_gguf_path(dir.file(name));
  };
  EXPECT_TRUE(is_gguf_path("missing.GGUF"));
  EXPECT_TRUE(is_gguf("damaged.Gguf", ""));  // Reading it says what is wrong.
  EXPECT_TRUE(is_gguf("blob", "GGUF\x03"));
  EXPECT_FALSE(is_gguf("text", "GGU"));
  EXPECT_FALSE(is_gguf("empty", ""));
  EXPECT_FALSE(is_gguf("tokenizer.json", "{}"));
  EXPECT_FALSE(is_gguf_path(""));
  ASSERT_EQ(mkfifo(dir.file("pipe").c_str(), 0600), 0);
  EXPECT_FALSE(is_gguf_path(dir.file("pipe")));  // Without waiting for someone who writes.
  EXPECT_TRUE(has_gguf_name("M.GgUf"));
  EXPECT_FALSE(has_gguf_name("gguf"));
  EXPECT_FALSE(has_gguf_name("m.gguf.part"));
}

}  // namespace
}  // namespace volta
