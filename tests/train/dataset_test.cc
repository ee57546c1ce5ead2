#include "train/dataset.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "base/log.h"
#include "formats/safetensors.h"
#include "support/temp_dir.h"
#include "text/tokenizers/bpe_trainer.h"
#include "train/helpers.h"

namespace volta {
namespace {

using test::expect_error;

class DatasetTest : public testing::Test {
 protected:
  std::string put(const std::string& text) {
    test::put_file(path_, text);
    return path_;
  }
  test::TempDir dir_;
  std::string path_ = dir_.file("text");
};

TEST_F(DatasetTest, TextIsSplitAtItsEnd) {
  VOLTA_ASSERT_OK(const Dataset data, load_text(put("abcdefghij"), "char", nullptr, 0.25));
  EXPECT_EQ(data.tokens, 10);
  EXPECT_EQ(data.bytes, 10);
  EXPECT_EQ(data.xxh3.size(), 16u);
  EXPECT_EQ(*data.train, (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(*data.validation, (std::vector<std::int32_t>{7, 8, 9}));
  EXPECT_EQ(data.tokenizer->vocab_size(), 10);
  EXPECT_FALSE(data.has_examples());
  VOLTA_ASSERT_OK(const Dataset whole, load_text(path_, "byte", nullptr, 0.0));
  EXPECT_EQ(whole.train->size(), 10u);
  EXPECT_TRUE(whole.validation->empty());
  EXPECT_EQ(whole.xxh3, data.xxh3);
}

// nanoGPT's split: the first int(n * 0.9) characters.
TEST_F(DatasetTest, ATenthIsTheLastTenth) {
  VOLTA_ASSERT_OK(const Dataset data,
                  load_text(put(std::string(1115394, 'x')), "byte", nullptr, 0.1));
  EXPECT_EQ(data.train->size(), 1003854u);
  EXPECT_EQ(data.validation->size(), 111540u);
}

TEST_F(DatasetTest, SaysWhatIsWrongWithATextFile) {
  expect_error(load_text(dir_.file("none"), "byte", nullptr, 0.1), ErrorCode::kNotFound, "none");
  expect_error(load_text(dir_.path(), "byte", nullptr, 0.1), ErrorCode::kInvalidFile, dir_.path());
  expect_error(load_text("/dev/null", "byte", nullptr, 0.1), ErrorCode::kInvalidFile, "a device");
  expect_error(load_text(put(""), "byte", nullptr, 0.1), ErrorCode::kInvalidFile, "is empty");
  expect_error(load_text(put("ok\xFFno"), "char", nullptr, 0.1), ErrorCode::kInvalidFile,
               "byte 2 is not UTF-8");
  EXPECT_TRUE(load_text(put("ok\xFFno"), "byte", nullptr, 0.1));
  expect_error(load_text(put("abc"), "word", nullptr, 0.1), ErrorCode::kInvalidFile,
               "unknown tokenizer");
  if (geteuid() != 0) {
    ASSERT_EQ(chmod(path_.c_str(), 0), 0);
    expect_error(load_text(path_, "byte", nullptr, 0.1), ErrorCode::kIo, path_);
  }
}

// Only what a text holds is the text's fault.
TEST_F(DatasetTest, OtherErrorsOfATokenizerStayWhatTheyAre) {
  class NoMemory : public Tokenizer {
   public:
    std::string_view kind() const override { return "byte"; }
    std::int64_t vocab_size() const override { return 1; }
    Result<std::vector<std::int32_t>> encode(std::string_view /*text*/) const override {
      return fail(ErrorCode::kOutOfMemory, "no memory");
    }
    std::string_view token_bytes(std::int32_t /*id*/) const override { return ""; }
    std::string to_json() const override { return ""; }
  };
  put("abc");
  expect_error(load_text(path_, "byte", std::make_shared<NoMemory>(), 0.1), ErrorCode::kOutOfMemory,
               path_ + ": no memory");
  expect_error(load_held_out_text(path_, NoMemory(), 1.0), ErrorCode::kOutOfMemory, "no memory");
  const std::string none = dir_.file("none.json");
  const auto missing = load_text(path_, none, nullptr, 0.1);
  expect_error(missing, ErrorCode::kNotFound, none);
  EXPECT_EQ(missing.error().message().find(path_ + ":"), std::string::npos);
}

// Hugging Face's tokenizers would read U+FFFD.
TEST_F(DatasetTest, TextThatIsNotUtf8IsRefused) {
  VOLTA_ASSERT_OK(const std::string json, tokenizers::train_byte_level_bpe("a b c", {}));
  VOLTA_ASSERT_OK(const auto tokenizer, parse_tokenizer(json, "test"));
  const std::string text = put("abc \xE9 abc");
  expect_error(load_text(text, "byte", tokenizer, 0.1), ErrorCode::kInvalidFile,
               "byte 4 is not UTF-8");
  expect_error(load_held_out_text(text, *tokenizer, 1.0), ErrorCode::kInvalidFile, "byte 4");
  EXPECT_TRUE(load_held_out_text(text, *make_byte_tokenizer(), 1.0));
  // Characters of ASCII in UTF-16 without a mark are valid UTF-8 with zeros between them.
  const std::string wide = put(std::string("a\0b\0c\0 \0a\0b\0", 12));
  for (const auto& [kind, given] :
       {std::pair("byte", tokenizer), std::pair("char", std::shared_ptr<const Tokenizer>())}) {
    expect_error(load_text(wide, kind, given, 0.1), ErrorCode::kInvalidFile,
                 "it is UTF-16, not UTF-8; convert it with `iconv -f UTF-16LE");
  }
  std::string warned;
  set_log_callback([&](LogLevel, std::string_view message) { warned += message; });
  EXPECT_TRUE(load_text(wide, "byte", nullptr, 0.1));
  set_log_callback({});
  EXPECT_THAT(warned, testing::HasSubstr("this looks like UTF-16LE; its bytes are learned"));
}

TEST_F(DatasetTest, AGivenTokenizerMustKnowEveryCharacter) {
  VOLTA_ASSERT_OK(const auto tokenizer, make_char_tokenizer("abc"));
  expect_error(load_text(put("abcd"), "byte", tokenizer, 0.1), ErrorCode::kInvalidFile, "'d'");
  VOLTA_ASSERT_OK(const Dataset data, load_text(put("cab"), "byte", tokenizer, 0.0));
  EXPECT_EQ(data.tokenizer, tokenizer);
  EXPECT_EQ(*data.train, (std::vector<std::int32_t>{2, 0, 1}));
}

TEST_F(DatasetTest, BothPartsMustHoldAWindow) {
  VOLTA_ASSERT_OK(const Dataset data, load_text(put(std::string(100, 'x')), "byte", nullptr, 0.1));
  VOLTA_ASSERT_STATUS(check_lengths(data, 9));
  expect_error(check_lengths(data, 10), ErrorCode::kInvalidArgument,
               "10 of its 100 tokens are for validation; a context of 10 needs at least 11");
  expect_error(check_lengths(data, 90), ErrorCode::kInvalidArgument,
               "90 of its 100 tokens are for training; a context of 90 needs at least 91");
  VOLTA_ASSERT_OK(const Dataset whole, load_text(path_, "byte", nullptr, 0.0));
  VOLTA_ASSERT_STATUS(check_lengths(whole, 99));
  // Validation data of its own has a file of its own to blame.
  Dataset two = data;
  two.validation_file = DataOrigin{.path = "val.txt", .bytes = 10, .xxh3 = {}};
  expect_error(check_lengths(two, 10), ErrorCode::kInvalidArgument,
               "val.txt: it has 10 tokens to validate with; a context of 10 needs at least 11");
}

TEST_F(DatasetTest, AHeldOutTextIsAllOfItOrTheValidationPart) {
  const auto tokenizer = make_byte_tokenizer();
  test::put_file(path_, "0123456789");
  VOLTA_ASSERT_OK(const HeldOutText whole, load_held_out_text(path_, *tokenizer));
  EXPECT_EQ(whole.tokens.size(), 10u);
  EXPECT_EQ(whole.bytes, 10);
  VOLTA_ASSERT_OK(const HeldOutText part, load_held_out_text(path_, *tokenizer, 0.3));
  VOLTA_ASSERT_OK(const Dataset same, load_text(path_, "byte", nullptr, 0.3));
  EXPECT_EQ(part.tokens, *same.validation);
  EXPECT_EQ(part.bytes, 3);
  expect_error(load_held_out_text(path_, *tokenizer, 0.1), ErrorCode::kInvalidFile,
               "1 tokens to evaluate");
  test::put_file(path_, "");
  expect_error(load_held_out_text(path_, *tokenizer), ErrorCode::kInvalidFile, "is empty");
  VOLTA_ASSERT_OK(const auto characters, make_char_tokenizer("ab"));
  test::put_file(path_, "abc");
  expect_error(load_held_out_text(path_, *characters), ErrorCode::kInvalidFile, path_);
}

// Each text is split by itself, and the tokenizer knows the characters of all of them.
TEST_F(DatasetTest, SeveralTextsAddUp) {
  const std::string a = dir_.file("a"), b = dir_.file("b");
  test::put_file(a, "aaab");
  test::put_file(b, "cccccccd");
  const DataFiles files{.train = {a, b}, .val_fraction = 0.25};
  VOLTA_ASSERT_OK(const Dataset data, load_texts(files, "char", nullptr));
  EXPECT_EQ(data.tokenizer->decode(*data.train), "aaacccccc");
  EXPECT_EQ(data.tokenizer->decode(*data.validation), "bcd");
  EXPECT_EQ(data.tokens, 12);
  EXPECT_EQ(data.bytes, 12);
  EXPECT_EQ(data.path, a + " and 1 more");
  VOLTA_ASSERT_OK(const Dataset other, load_texts({.train = {b, a}}, "char", nullptr));
  EXPECT_NE(other.xxh3, data.xxh3);
  expect_error(load_texts({.train = {a, dir_.file("none")}}, "char", nullptr), ErrorCode::kNotFound,
               "none");
}

TEST_F(DatasetTest, ValidationCanHaveATextOfItsOwn) {
  const DataFiles files{
      .train = {put("aaaa")}, .validation = dir_.file("val"), .val_fraction = 0.25};
  test::put_file(dir_.file("val"), "bb");
  const auto tokenizer = make_byte_tokenizer();
  VOLTA_ASSERT_OK(const Dataset data, load_texts(files, "", tokenizer));
  EXPECT_EQ(data.train->size(), 4u);
  EXPECT_EQ(tokenizer->decode(*data.validation), "bb");
  EXPECT_EQ(data.validation_file->bytes, 2);
  EXPECT_NE(data.validation_file->xxh3, data.xxh3);
  // The characters of a tokenizer are those that are trained on.
  expect_error(load_texts(files, "char", nullptr), ErrorCode::kInvalidFile, dir_.file("val"));
}

// Texts that are too long for memory are the same tokens, in a mapped file.
TEST_F(DatasetTest, LongTextsAreMapped) {
  const std::string first = dir_.file("first"), second = dir_.file("second");
  test::put_file(first, "one two\n\xC3\xA9t\xC3\xA9 four\nfive six seven\n");
  test::put_file(second, "\xE6\xB5\xB7\xE6\xB5\xB7\xE6\xB5\xB7\xE6\xB5\xB7 eight nine ten\n");
  for (const std::string kind : {"byte", "char"}) {
    for (const std::vector<std::string>& paths :
         std::vector<std::vector<std::string>>{{first}, {first, second}}) {
      for (const double fraction : {0.0, 0.25}) {
        DataFiles files{.train = paths, .validation = {}, .val_fraction = fraction};
        VOLTA_ASSERT_OK(const Dataset whole, load_texts(files, kind, nullptr));
        files.most_in_memory = 7;  // Pieces end with a line, or with a character.
        files.scratch = dir_.file("new/run");
        VOLTA_ASSERT_OK(const Dataset mapped, load_texts(files, kind, nullptr));
        ASSERT_NE(mapped.mapped, nullptr);
        EXPECT_EQ(whole.mapped, nullptr);
        EXPECT_EQ(mapped.tokens, whole.tokens);
        EXPECT_EQ(mapped.xxh3, whole.xxh3);
        EXPECT_EQ(mapped.bytes, whole.bytes);
        EXPECT_EQ(mapped.tokenizer->vocab_size(), whole.tokenizer->vocab_size());
        EXPECT_EQ(*mapped.validation, *whole.validation);
        ASSERT_EQ(mapped.train_tokens(), whole.train_tokens());
        std::vector<std::int32_t> tokens(whole.train->size());
        mapped.mapped->copy(0, tokens);
        EXPECT_EQ(tokens, *whole.train) << kind;
      }
    }
  }
  // The temporary file has no name any more.
  EXPECT_TRUE(list_directory(dir_.file("new"))->empty());
  DataFiles files{.train = {first}, .validation = second, .val_fraction = 0.5};
  files.most_in_memory = 7;
  files.scratch = dir_.file("run");
  VOLTA_ASSERT_OK(const Dataset data, load_texts(files, "byte", nullptr));
  EXPECT_EQ(data.train_tokens(), data.tokens);
  EXPECT_EQ(std::ssize(*data.validation), *file_size(second));
  // Ids of a large vocabulary have 16 or 32 bits.
  const auto wide = [&](std::int64_t size, IdWidth width) {
    std::vector<std::int32_t> ids(3);
    const auto tokens = MappedTokens::open(second, width);
    EXPECT_TRUE(tokens);
    if (!tokens) return ids;
    EXPECT_EQ(static_cast<std::int64_t>(tokens->size()), size);
    tokens->copy(1, ids);
    return ids;
  };
  EXPECT_EQ(wide(28, IdWidth::kOneByte), (std::vector<std::int32_t>{0xB5, 0xB7, 0xE6}));
  EXPECT_EQ(wide(14, IdWidth::kTwoBytes)[0], 0xE6B7);
  EXPECT_EQ(wide(7, IdWidth::kFourBytes)[0], static_cast<std::int32_t>(0xB5E6B7B5));
  // Errors leave no file, and name the text.
  test::put_file(second, "ab\xFF and more");
  files.train = {first, second};
  files.validation.clear();
  expect_error(load_texts(files, "char", nullptr), ErrorCode::kInvalidFile, "second");
  test::put_file(second, "");
  expect_error(load_texts(files, "byte", nullptr), ErrorCode::kInvalidFile, "second is empty");
  files.train = {first, dir_.file("none")};
  expect_error(load_texts(files, "byte", nullptr), ErrorCode::kNotFound, "none");
  files.train = {first, first};
  expect_error(load_texts(files, "byte", nullptr, [] { return true; }), ErrorCode::kInterrupted,
               "interrupted");
  VOLTA_ASSERT_OK(const auto names, list_directory(dir_.path()));
  for (const std::string& name : names) {
    EXPECT_FALSE(name.contains("tokens")) << name;
  }
}

// What nanoGPT's prepare.py writes.
TEST_F(DatasetTest, SixteenBitIdsAreMapped) {
  const std::string bin = dir_.file("train.bin"), val = dir_.file("val.bin");
  std::string bytes;
  for (int i = 0; i < 10; ++i) bytes += std::string{static_cast<char>(i), static_cast<char>(i % 2)};
  test::put_file(bin, bytes);
  test::put_file(val, std::string("\xFF\xC3\x01\x00", 4));
  VOLTA_ASSERT_OK(const Dataset data,
                  load_token_stream({.train = {bin}, .validation = {}, .val_fraction = 0.2}, 266));
  EXPECT_EQ(data.tokens, 10);
  EXPECT_EQ(data.train_tokens(), 8);
  std::vector<std::int32_t> third(1);
  data.mapped->copy(3, third);
  EXPECT_EQ(third[0], 256 + 3);
  EXPECT_EQ(*data.validation, (std::vector<std::int32_t>{8, 256 + 9}));
  VOLTA_ASSERT_OK(const Dataset other,
                  load_token_stream({.train = {bin}, .validation = val}, 50176));
  EXPECT_EQ(other.train_tokens(), 10);
  EXPECT_EQ(*other.validation, (std::vector<std::int32_t>{50175, 1}));
  expect_error(load_token_stream({.train = {bin}}, 265), ErrorCode::kInvalidFile,
               bin + ": token 9 is 265; ids must be from 0 to 264 for this vocabulary");
  expect_error(load_token_stream({.train = {bin}, .validation = val}, 50175),
               ErrorCode::kInvalidFile, val + ": token 0 is 50175");
  // The windows are those of the same tokens in memory.
  std::vector<std::int32_t> values(other.mapped->size());
  other.mapped->copy(0, values);
  const auto memory = std::make_shared<const std::vector<std::int32_t>>(std::move(values));
  VOLTA_ASSERT_OK(const RandomWindows mapped, RandomWindows::create(other.mapped, 10, 3, 5));
  VOLTA_ASSERT_OK(const RandomWindows plain, RandomWindows::create(memory, 3, 5));
  std::vector<std::int32_t> ids(12), targets(12), same_ids(12), same_targets(12);
  VOLTA_ASSERT_STATUS(mapped.fill(4, 0, ids, targets));
  VOLTA_ASSERT_STATUS(plain.fill(4, 0, same_ids, same_targets));
  EXPECT_EQ(ids, same_ids);
  EXPECT_EQ(targets, same_targets);
  test::put_file(bin, "abc");
  expect_error(mapped.fill(4, 0, ids, targets), ErrorCode::kInvalidFile, bin);
  expect_error(load_token_stream({.train = {bin}}, 266), ErrorCode::kInvalidFile,
               "3 bytes are not 16-bit token ids");
  expect_error(load_token_stream({.train = {val, val}}, 266), ErrorCode::kInvalidArgument, "cat");
}

TEST_F(DatasetTest, ReadingLargeFilesOfIdsCanBeInterrupted) {
  const std::string bin = dir_.file("train.bin"), val = dir_.file("val.bin");
  test::put_file(bin, std::string(40, '\0'));
  test::put_file(val, "");
  std::filesystem::resize_file(val, 2 * (kMostMappedValidation + 1));
  expect_error(load_token_stream({.train = {bin}}, 266, [] { return true; }),
               ErrorCode::kInterrupted, bin);
  expect_error(load_token_stream({.train = {bin}, .validation = val}, 50176),
               ErrorCode::kInvalidArgument, "head -c");
  int asked = 0;
  expect_error(load_token_stream({.train = {val}}, 266, [&] { return ++asked == 3; }),
               ErrorCode::kInterrupted, val);
  constexpr std::int64_t kFar = (std::int64_t{9} << 20) + 10;  // Beyond two pieces that are read.
  std::fstream(val, std::ios::in | std::ios::out | std::ios::binary).seekp(kFar) << "\x0A\x01";
  expect_error(load_token_stream({.train = {val}}, 266), ErrorCode::kInvalidFile,
               val + ": token " + std::to_string(kFar / 2) + " is 266");
}

// The place of a mistake counts from the beginning of the file, not of the piece.
TEST_F(DatasetTest, LongTextsAreCheckedInPieces) {
  const std::string text = dir_.file("a.txt");
  constexpr std::int64_t kBytes = (std::int64_t{64} << 20) + 10;
  test::put_file(text, "");
  std::filesystem::resize_file(text, kBytes - 1);
  std::ofstream(text, std::ios::app | std::ios::binary) << '\xFF';
  DataFiles files = {.train = {text}, .most_in_memory = 20, .scratch = dir_.file("out")};
  expect_error(load_texts(files, "char", nullptr), ErrorCode::kInvalidFile,
               fmt::format("byte {} is not UTF-8", kBytes - 1));
  for (const int after : {0, 1, 2, 3}) {
    int asked = 0;
    expect_error(load_texts(files, "char", nullptr, [&] { return asked++ == after; }),
                 ErrorCode::kInterrupted, text);
  }
}

class ExampleFile : public DatasetTest {
 protected:
  void put_ids(const Shape& shape, const std::vector<std::int64_t>& ids,
               const std::string& name = "input_ids") {
    const auto tensor = Tensor::from_values<std::int64_t>(shape, ids);
    ASSERT_TRUE(write_safetensors(path_, {{name, *tensor}}));
  }
};

TEST_F(ExampleFile, IsKnownByItsName) {
  EXPECT_EQ(data_kind("a/b.safetensors"), DataKind::kTokenIds);
  EXPECT_EQ(data_kind("a/b.jsonl"), DataKind::kChats);
  EXPECT_EQ(data_kind("a/b.txt"), DataKind::kText);
}

TEST_F(ExampleFile, GivesRows) {
  put_ids(Shape(2, 3), {1, 2, 3, 4, 5, 6});
  VOLTA_ASSERT_OK(const Dataset data, load_examples({.train = {path_}}, 7));
  EXPECT_TRUE(data.has_examples());
  EXPECT_EQ(data.examples, 2);
  EXPECT_EQ(data.example_length, 2);
  EXPECT_EQ(data.rows, (std::vector<std::int32_t>{1, 2, 3, 4, 5, 6}));
}

TEST_F(ExampleFile, SeveralFilesAddUp) {
  put_ids(Shape(1, 3), {1, 2, 3});
  const std::string first = dir_.file("first.safetensors");
  std::filesystem::rename(path_, first);
  put_ids(Shape(2, 3), {4, 5, 6, 1, 1, 1});
  VOLTA_ASSERT_OK(const Dataset data,
                  load_examples({.train = {first, path_}, .validation = path_}, 7));
  EXPECT_EQ(data.examples, 3);
  EXPECT_EQ(data.rows, (std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 1, 1, 1}));
  EXPECT_EQ(data.validation_rows->ids, (std::vector<std::int32_t>{4, 5, 1, 1}));
  EXPECT_EQ(data.validation_rows->targets, (std::vector<std::int32_t>{5, 6, 1, 1}));
  put_ids(Shape(1, 4), {1, 2, 3, 4});
  expect_error(load_examples({.train = {first, path_}}, 7), ErrorCode::kInvalidFile,
               path_ + ": its rows have 4 ids, those of the other files 3");
}

// A resumed run compares the hash, so it must be that of the file whose ids were read.
TEST_F(ExampleFile, FilesThatAreReplacedWhileTheyAreReadAreNoticed) {
  const auto read_while_replaced = [&](const std::string& file, const std::string& text,
                                       const auto& load) {
    SCOPED_TRACE(file);
    const std::string path = dir_.file(file);
    test::put_file(path, text);
    bool replaced = false;
    const Interruption replace = [&] {
      if (!std::exchange(replaced, true)) {
        test::put_file(path + ".new", text + text);
        std::filesystem::rename(path + ".new", path);
      }
      return false;
    };
    expect_error(load(path, replace), ErrorCode::kInvalidFile, "'" + path + "' was ");
    EXPECT_TRUE(replaced);
  };
  put_ids(Shape(2, 3), {1, 2, 3, 4, 5, 6});
  read_while_replaced("rows.safetensors", test::get_file(path_),
                      [](const std::string& path, const Interruption& replace) {
                        return load_examples({.train = {path}}, 7, replace);
                      });
  read_while_replaced("ids.bin", std::string(8, '\0'),
                      [](const std::string& path, const Interruption& replace) {
                        return load_token_stream({.train = {path}}, 7, replace);
                      });
  read_while_replaced("chats.jsonl",
                      R"({"prompt": "a", "completion": "b"})"
                      "\n",
                      [](const std::string& path, const Interruption& replace) {
                        const auto tokenizer = make_byte_tokenizer();
                        const ChatRenderer renderer{.chat_template = nullptr,
                                                    .tokenizer = tokenizer.get(),
                                                    .interrupted = replace,
                                                    .row_tokens = 8};
                        return load_chats({.train = {path}}, renderer, 1);
                      });
  read_while_replaced("long.txt", "a text that is mapped",
                      [&](const std::string& path, const Interruption& replace) {
                        const DataFiles files{
                            .train = {path}, .most_in_memory = 4, .scratch = dir_.file("run")};
                        return load_texts(files, "byte", nullptr, replace);
                      });
}

TEST_F(ExampleFile, SaysWhatIsWrong) {
  expect_error(load_examples({.train = {dir_.file("none.safetensors")}}, 7), ErrorCode::kNotFound,
               "none");
  put_ids(Shape(2, 3), {1, 2, 3, 4, 7, 6});
  expect_error(load_examples({.train = {path_}}, 7), ErrorCode::kInvalidFile,
               "input_ids[1, 1] is 7; ids must be from 0 to 6");
  put_ids(Shape(1, 2), {-1, 2});
  expect_error(load_examples({.train = {path_}}, 7), ErrorCode::kInvalidFile,
               "input_ids[0, 0] is -1");
  put_ids(Shape(1, 2), {1, 2}, "ids");
  expect_error(load_examples({.train = {path_}}, 7), ErrorCode::kNotFound, "input_ids");
  put_ids(Shape(4), {1, 2, 3, 4});
  expect_error(load_examples({.train = {path_}}, 7), ErrorCode::kInvalidFile, "i64[4]");
  put_ids(Shape(2, 1), {1, 2});
  expect_error(load_examples({.train = {path_}}, 7), ErrorCode::kInvalidFile, "i64[2, 1]");
  put_ids(Shape(0, 3), {});
  expect_error(load_examples({.train = {path_}}, 7), ErrorCode::kInvalidFile, "i64[0, 3]");
  const auto floats = Tensor::zeros({DType::kF32, Shape(2, 3)});
  ASSERT_TRUE(write_safetensors(path_, {{"input_ids", *floats}}));
  expect_error(load_examples({.train = {path_}}, 7), ErrorCode::kInvalidFile, "f32[2, 3]");
  test::put_file(path_, "not safetensors");
  expect_error(load_examples({.train = {path_}}, 7), ErrorCode::kInvalidFile, path_);
}

}  // namespace
}  // namespace volta
