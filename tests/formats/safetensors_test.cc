#include "formats/safetensors.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/memory.h"
#include "device/helpers.h"
#include "support/alloc_counter.h"
#include "support/fault_device.h"
#include "support/file_faults.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::expect_error;
using test::floats;
using testing::HasSubstr;

// A file of this header and so many data bytes.
std::string file_of(const std::string& header, std::size_t data_bytes = 0) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data_bytes, 'd');
}

Result<SafetensorsHeader> parse(const std::string& bytes) {
  return parse_safetensors_header(as_bytes(bytes), "file");
}

std::string entry(const std::string& dtype, const std::string& shape, int begin, int end) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":[)" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

TEST(SafetensorsHeader, IsReadInAnyOrder) {
  const auto header =
      parse(file_of(R"({"b":)" + entry("I64", "[2]", 0, 16) + R"(,"__metadata__":{"k":"v"},"a":)" +
                        entry("BF16", "[2,3]", 16, 28) + R"(,"s":)" + entry("F32", "[]", 28, 32) +
                        R"(,"none":)" + entry("U8", "[0,4]", 32, 32) + "}   ",
                    32));
  ASSERT_TRUE(header) << header.error().message();
  ASSERT_EQ(header->entries.size(), 4u);
  EXPECT_EQ(header->entries[0].name, "a");
  EXPECT_EQ(header->entries[0].spec, (TensorSpec{DType::kBF16, Shape(2, 3)}));
  EXPECT_EQ(header->entries[0].offset, 16);
  EXPECT_EQ(header->entries[1].spec.dtype, DType::kI64);
  EXPECT_EQ(header->entries[2].name, "none");
  EXPECT_EQ(header->entries[3].spec, (TensorSpec{DType::kF32, Shape()}));
  EXPECT_EQ(header->metadata, (std::map<std::string, std::string>{{"k", "v"}}));
}

TEST(SafetensorsHeader, HostileOnesAreRefused) {
  const auto refuse = [](const std::string& bytes, const std::string& text) {
    expect_error(parse(bytes), ErrorCode::kInvalidFile, text);
  };
  refuse("", "0 bytes are too short");
  refuse("1234567", "7 bytes are too short");
  refuse(std::string(8, '\0'), "not a JSON object");
  refuse(std::string(8, '\xFF') + "{}", "the header claims 18446744073709551615 bytes");
  refuse(file_of("{}").substr(0, 9), "it is truncated");
  std::string huge = file_of("{}");
  const std::uint64_t length = (16 << 20) + 1;
  std::memcpy(huge.data(), &length, 8);
  refuse(huge + std::string(1000, ' '), "the header claims 16777217 bytes");
  refuse(huge + std::string(length, ' '), "16777217 bytes, more than the 16777216 allowed");
  std::string values = "{";
  for (int i = 0; i < 150'000; ++i) values += R"("":[0,0,0],)";
  refuse(file_of(values + "}"), "more than the 524288 JSON values allowed");
  refuse(file_of("[]"), "not a JSON object");
  refuse(file_of(" {}"), "not a JSON object");
  refuse(file_of("{"), "file");
  refuse(file_of("{\"\xFF\":1}"), "file");
  refuse(file_of("{} x"), "file");
  refuse(file_of(R"({"a":1})"), "a");
  refuse(
      file_of(R"({"a":)" + entry("F32", "[1]", 0, 4) + R"(,"a":)" + entry("F32", "[1]", 4, 8) + "}",
              8),
      "a");
  refuse(file_of(R"({"__metadata__":[]})"), "expected an object");
  refuse(file_of(R"({"__metadata__":{"k":1}})"), "'k' is an integer, expected a string");
  refuse(file_of(R"({"":)" + entry("F32", "[1]", 0, 4) + "}", 4), "name is empty or too long");
  refuse(file_of(R"({")" + std::string(5000, 'n') + R"(":)" + entry("F32", "[1]", 0, 4) + "}", 4),
         "name is empty or too long");
}

TEST(SafetensorsHeader, TruncationIsCalledThat) {
  const std::string whole = file_of(R"({"a":)" + entry("F32", "[2]", 0, 8) + "}", 8);
  ASSERT_TRUE(parse(whole));
  expect_error(parse(whole.substr(0, whole.size() - 3)), ErrorCode::kInvalidFile,
               "truncated: its header needs " + std::to_string(whole.size()) +
                   " bytes, the file has " + std::to_string(whole.size() - 3));
}

TEST(SafetensorsHeader, HostileTensorsAreRefused) {
  const auto refuse = [](const std::string& tensor, std::size_t bytes, const std::string& text) {
    const auto header = parse(file_of(R"({"a":)" + tensor + "}", bytes));
    expect_error(header, ErrorCode::kInvalidFile, text);
    EXPECT_THAT(header.error().message(), HasSubstr("file: a"));
  };
  refuse(entry("F64", "[1]", 0, 8), 8, "unknown type 'F64'");
  refuse(entry("f32", "[1]", 0, 4), 4, "unknown type");
  refuse(entry("F32", "[1,1,1,1,1,1,1]", 0, 4), 4, "7 dimensions; at most 6");
  refuse(entry("F32", "[-1]", 0, 4), 4, "shape[0]");
  refuse(entry("F32", "[1.5]", 0, 4), 4, "shape[0]");
  refuse(entry("F32", "[18446744073709551616]", 0, 4), 4, "shape[0]");
  refuse(entry("F32", "[4611686018427387904,4]", 0, 4), 4, "shape[0]");
  refuse(entry("F32", "[1099511627776,1099511627776]", 0, 4), 4, "largest tensor");
  refuse(entry("F32", "1", 0, 4), 4, "shape");
  refuse(entry("F32", "[1]", 0, 8), 4, "[0, 8] are 8 bytes");
  refuse(entry("F32", "[1]", -4, 0), 4, "data_offsets[0]");
  refuse(entry("F32", "[1]", 4, 0), 4, "are -4 bytes");
  refuse(entry("F32", "[2]", 0, 4), 4, "[0, 4] are 4 bytes, but f32[2] needs 8");
  refuse(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})", 4, "expected [begin, end]");
  refuse(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,8]})", 8, "expected [begin, end]");
  refuse(R"({"dtype":"F32","shape":[1]})", 4, "data_offsets");
  refuse(R"({"shape":[1],"data_offsets":[0,4]})", 4, "dtype");
  refuse(R"({"dtype":32,"shape":[1],"data_offsets":[0,4]})", 4, "dtype");
}

TEST(SafetensorsHeader, OverlapsHolesAndRestsAreRefused) {
  const auto refuse = [](int begin, int end, std::size_t bytes, const std::string& text) {
    expect_error(parse(file_of(R"({"a":)" + entry("F32", "[1]", 0, 4) + R"(,"b":)" +
                                   entry("F32", "[1]", begin, end) + "}",
                               bytes)),
                 ErrorCode::kInvalidFile, text);
  };
  refuse(0, 4, 8, "overlap or leave a hole");
  refuse(2, 6, 8, "overlap or leave a hole");
  refuse(8, 12, 12, "begins at byte 8 of the data, expected 4");
  refuse(4, 8, 9, "the tensors take 8 bytes, the file has 9");
  expect_error(parse(file_of("{}", 3)), ErrorCode::kInvalidFile, "take 0 bytes, the file has 3");
  EXPECT_TRUE(parse(file_of("{}")));
}

// Reading the entries must not take quadratic time.
TEST(SafetensorsHeader, ManyTensorsAreReadInTime) {
  std::string header = "{";
  for (int i = 0; i < 70000; ++i) {
    header += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":" + entry("U8", "[0]", 0, 0);
  }
  const auto parsed = parse(file_of(header + "}"));
  ASSERT_TRUE(parsed) << parsed.error().message();
  EXPECT_EQ(parsed->entries.size(), 70000u);
}

// However long an array of a header is, memory stays in proportion to the header.
TEST(SafetensorsHeader, HalfAMillionDimensionsCostLittle) {
  if (!test::can_count_allocations()) GTEST_SKIP() << "allocations cannot be counted here";
  std::string shape = "[1";
  for (int i = 1; i < 500'000; ++i) shape += ",1";
  const std::string bytes = file_of(R"({"a":)" + entry("F32", shape + "]", 0, 4) + "}", 4);
  const test::AllocationCounter counter;
  const auto header = parse(bytes);
  const std::int64_t calls = counter.count();
  const std::int64_t asked = counter.bytes();
  expect_error(header, ErrorCode::kInvalidFile, "an array has more elements than the 64 allowed");
  EXPECT_LT(calls, 100);
  // simdjson asks for 17 bytes a byte of text, of which it touches what it needs.
  EXPECT_LT(asked, 24 * std::ssize(bytes));
}

// The same for good ones: names, shapes and places of 20,000 tensors.
TEST(SafetensorsHeader, GoodEntriesMakeNoPaths) {
  if (!test::can_count_allocations()) GTEST_SKIP() << "allocations cannot be counted here";
  constexpr int kTensors = 20'000;
  std::string header = "{";
  for (int i = 0; i < kTensors; ++i) {
    header += (i == 0 ? "" : ",") + fmt::format("\"model.layers.{}.self_attn.q_proj.weight\":", i) +
              entry("U8", "[1,1,1]", i, i + 1);
  }
  const std::string bytes = file_of(header + "}", kTensors);
  const test::AllocationCounter counter;
  const auto parsed = parse(bytes);
  const std::int64_t calls = counter.count();
  ASSERT_TRUE(parsed) << parsed.error().message();
  // Of the value: the key, its members, their long keys, two lists. Of the entry: lists, the name.
  EXPECT_LT(calls, 14 * kTensors);
}

class SafetensorsFileTest : public testing::Test {
 protected:
  test::TempDir dir_;
  std::string path_ = dir_.file("x.safetensors");
};

TEST_F(SafetensorsFileTest, WritesWhatItReads) {
  const std::map<std::string, Tensor> tensors = {
      {"a.weight", floats(Shape(2, 2), {1, 2, 3, 4})},
      {"b", *Tensor::from_values<std::int64_t>(Shape(3), std::vector<std::int64_t>{-1, 0, 7})},
      {"empty", *Tensor::zeros({DType::kF16, Shape(0, 3)})},
      {"half", *Tensor::zeros({DType::kBF16, Shape(5)})},
      {"bytes", *Tensor::from_values<std::uint8_t>(Shape(3), std::vector<std::uint8_t>{1, 2, 3})},
      {"scalar", *Tensor::zeros({DType::kI32, Shape()})},
      {"i8", *Tensor::zeros({DType::kI8, Shape(1)})},
  };
  ASSERT_TRUE(write_safetensors(path_, tensors, {{"format", "pt"}, {"quo\"te", "line\n"}}));
  const auto file = SafetensorsFile::open(path_);
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(file->entries().size(), tensors.size());
  EXPECT_EQ(file->metadata().at("quo\"te"), "line\n");
  const auto loaded = file->load_all();
  ASSERT_TRUE(loaded);
  for (const auto& [name, tensor] : tensors) {
    ASSERT_TRUE(loaded->contains(name));
    EXPECT_EQ(loaded->at(name).spec(), tensor.spec()) << name;
  }
  EXPECT_EQ(test::values(loaded->at("a.weight")), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(test::values<std::int64_t>(loaded->at("b")), (std::vector<std::int64_t>{-1, 0, 7}));
  ASSERT_NE(file->find("b"), nullptr);
  EXPECT_EQ(file->find("c"), nullptr);
  expect_error(file->load("c"), ErrorCode::kNotFound, "has no tensor 'c'");
  // The data begins at a multiple of the alignment, so that mapped tensors could be used in place.
  const auto header = parse_safetensors_header(read_binary_file(path_)->span(), path_);
  EXPECT_EQ(header->data_begin % 64, 0);
}

TEST_F(SafetensorsFileTest, ATensorsBytesDoNotDependOnWhereItLies) {
  const test::FaultyDevice device(test::cpu(1), false);
  const Tensor host = floats(Shape(3), {1, 2, 3});
  const Tensor remote = floats(Shape(3), {1, 2, 3}, device.memory());
  ASSERT_TRUE(write_safetensors(path_, {{"t", host}}));
  ASSERT_TRUE(write_safetensors(path_ + "2", {{"t", remote}}));
  EXPECT_EQ(*read_text_file(path_), *read_text_file(path_ + "2"));
  const auto loaded = SafetensorsFile::open(path_)->load("t", device.memory());
  ASSERT_TRUE(loaded);
  EXPECT_FALSE(loaded->host_accessible());
  EXPECT_EQ(test::values(*loaded), test::values(host));
}

TEST_F(SafetensorsFileTest, FailuresOfTheDeviceComeThrough) {
  test::FaultyDevice device(test::cpu(1), false);
  const Tensor remote = floats(Shape(3), {1, 2, 3}, device.memory());
  ASSERT_TRUE(write_safetensors(path_, {{"t", remote}}));
  device.faulty_memory().copy_fuse.arm(1);
  expect_error(write_safetensors(path_, {{"t", remote}}), ErrorCode::kDevice, "injected");
  const auto file = SafetensorsFile::open(path_);
  ASSERT_TRUE(file);  // The one before is still there.
  device.faulty_memory().allocation_fuse.arm(1);
  expect_error(file->load_all(device.memory()), ErrorCode::kOutOfMemory, "injected");
}

TEST_F(SafetensorsFileTest, OpeningSaysWhatIsWrong) {
  expect_error(SafetensorsFile::open(dir_.file("none")), ErrorCode::kNotFound, "none");
  expect_error(SafetensorsFile::open(dir_.path()), ErrorCode::kInvalidFile, dir_.path());
  std::ofstream(path_) << "junk";
  expect_error(SafetensorsFile::open(path_), ErrorCode::kInvalidFile, path_);
}

TEST_F(SafetensorsFileTest, AFullDiskLeavesTheOldFile) {
  ASSERT_TRUE(write_safetensors(path_, {{"old", floats(Shape(1), {1})}}));
  for (const auto call : {test::FileCall::kOpen, test::FileCall::kWrite, test::FileCall::kFsync,
                          test::FileCall::kClose, test::FileCall::kRename}) {
    test::FaultyFileOps faults;
    faults.fail(call, 1, ENOSPC, 1);
    const ScopedFileOps scope(faults);
    EXPECT_FALSE(write_safetensors(path_, {{"new", floats(Shape(1), {1})}}));
    EXPECT_NE(SafetensorsFile::open(path_)->find("old"), nullptr);
    EXPECT_EQ(list_directory(dir_.path())->size(), 1u);
  }
}

TEST_F(SafetensorsFileTest, APieceAtATimeIsTheSameFile) {
  const std::vector<float> numbers = {1, 2, 3, 4, 5, 6};
  ASSERT_TRUE(write_safetensors(
      path_ + "2", {{"a", floats(Shape(2), {1, 2})}, {"b", floats(Shape(4), {3, 4, 5, 6})}}));
  {
    auto writer =
        SafetensorsWriter::create(path_, {{"b", test::f32(Shape(4))}, {"a", test::f32(Shape(2))}});
    ASSERT_TRUE(writer) << writer.error().message();
    const auto bytes = std::as_bytes(std::span(numbers));
    ASSERT_TRUE(writer->write(bytes.first(3)));
    ASSERT_TRUE(writer->write(bytes.subspan(3, 18)));
    expect_error(writer->finish(), ErrorCode::kInvalidArgument, "lacks 3 bytes");
    expect_error(writer->write(bytes.first(4)), ErrorCode::kInvalidArgument,
                 "room for 3 more bytes, not for 4");
    EXPECT_FALSE(path_exists(path_));
    SafetensorsWriter moved = *std::move(writer);
    ASSERT_TRUE(moved.write(bytes.subspan(21)));
    ASSERT_TRUE(moved.finish());
    expect_error(moved.finish(), ErrorCode::kInvalidArgument, "is finished");
    expect_error(moved.write(bytes.first(1)), ErrorCode::kInvalidArgument, "room for 0");
  }
  EXPECT_EQ(*read_text_file(path_), *read_text_file(path_ + "2"));
  EXPECT_EQ(list_directory(dir_.path())->size(), 2u);
}

TEST_F(SafetensorsFileTest, AWriterThatIsGivenUpLeavesTheOldFile) {
  ASSERT_TRUE(write_safetensors(path_, {{"old", floats(Shape(1), {1})}}));
  {
    const auto writer = SafetensorsWriter::create(path_, {{"new", test::f32(Shape(4))}});
    ASSERT_TRUE(writer);
    EXPECT_EQ(list_directory(dir_.path())->size(), 2u);
  }
  EXPECT_EQ(list_directory(dir_.path())->size(), 1u);
  EXPECT_NE(SafetensorsFile::open(path_)->find("old"), nullptr);
}

TEST_F(SafetensorsFileTest, TwoWritersOfOneFileDoNotMeet) {
  ASSERT_TRUE(write_file_atomic(path_ + ".tmp", "mine"));
  {
    auto a = SafetensorsWriter::create(path_, {{"t", {DType::kU8, Shape(1)}}});
    auto b = SafetensorsWriter::create(path_, {{"t", {DType::kU8, Shape(1)}}});
    ASSERT_TRUE(a && b);
    ASSERT_TRUE(a->write(as_bytes("a")));
    ASSERT_TRUE(a->finish());
  }
  ASSERT_TRUE(SafetensorsFile::open(path_));
  EXPECT_EQ(*read_text_file(path_ + ".tmp"), "mine");
  EXPECT_EQ(list_directory(dir_.path())->size(), 2u);
}

TEST_F(SafetensorsFileTest, AWriterReplacesFilesOnly) {
  const auto create = [](const std::string& path, const TensorSpec& spec) {
    return SafetensorsWriter::create(path, {{"t", spec}});
  };
  const TensorSpec spec = test::f32(Shape(1));
  expect_error(create(dir_.path(), spec), ErrorCode::kIo, "is a folder");
  ASSERT_EQ(::mkfifo(dir_.file("pipe").c_str(), 0600), 0);
  expect_error(create(dir_.file("pipe"), spec), ErrorCode::kIo, "is a device");
  std::filesystem::create_symlink("elsewhere", dir_.file("link"));
  expect_error(create(dir_.file("link"), spec), ErrorCode::kIo, "is a symbolic link");
  EXPECT_EQ(list_directory(dir_.path())->size(), 2u);
  expect_error(create(dir_.file("none/x"), spec), ErrorCode::kIo, "none/x");
  expect_error(create(path_, test::f32(Shape(1 << 30, 1 << 30))), ErrorCode::kInvalidArgument,
               "tensor 't'");
  const TensorSpec packed{DType::kF32, Shape(64, 64), Encoding{Packing::kPanels, false, 32}};
  expect_error(create(path_, packed), ErrorCode::kInvalidArgument, "cannot be written");
}

}  // namespace
}  // namespace volta
