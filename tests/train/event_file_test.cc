// Event files, read back by a parser of their own.
#include "train/event_file.h"

#include <bit>
#include <filesystem>
#include <map>

#include "train/run_fixture.h"

namespace volta {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// What a record holds.
struct Event {
  double time = 0.0;
  std::int64_t step = 0;
  std::string version;
  bool restart = false;
  std::map<std::string, float> values;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  bool at_end() const { return rest_.empty(); }
  std::string_view take(std::size_t count) {
    EXPECT_LE(count, rest_.size());
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  std::uint64_t fixed(std::size_t bytes) {
    std::uint64_t value = 0;
    int shift = 0;
    for (const char c : take(bytes)) {
      value |= std::uint64_t{static_cast<unsigned char>(c)} << shift;
      shift += 8;
    }
    return value;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1).front());
      value |= std::uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) break;
    }
    return value;
  }

 private:
  std::string_view rest_;
};

// The mask of TFRecord, undone.
std::uint32_t unmasked(std::uint64_t stored) {
  return std::rotl(static_cast<std::uint32_t>(stored) - 0xA282EAD8u, 15);
}

void read_value(std::string_view bytes, Event& event) {
  Reader reader(bytes);
  std::string tag;
  while (!reader.at_end()) {
    const std::uint64_t key = reader.varint();
    if (key == (1 << 3 | 2)) {
      tag = reader.take(reader.varint());
    } else {
      EXPECT_EQ(key, 2u << 3 | 5u);
      event.values[tag] = std::bit_cast<float>(static_cast<std::uint32_t>(reader.fixed(4)));
    }
  }
}

Event read_event(std::string_view bytes) {
  Event event;
  Reader reader(bytes);
  while (!reader.at_end()) {
    switch (reader.varint()) {
      case 1 << 3 | 1:
        event.time = std::bit_cast<double>(reader.fixed(8));
        break;
      case 2 << 3:
        event.step = static_cast<std::int64_t>(reader.varint());
        break;
      case 3 << 3 | 2:
        event.version = reader.take(reader.varint());
        break;
      case 5 << 3 | 2: {
        Reader summary(reader.take(reader.varint()));
        while (!summary.at_end()) {
          EXPECT_EQ(summary.varint(), 1u << 3 | 2u);
          read_value(summary.take(summary.varint()), event);
        }
        break;
      }
      case 7 << 3 | 2:
        event.restart = reader.take(reader.varint()) == "\x08\x01";
        break;
      default:
        ADD_FAILURE() << "unknown field";
        return event;
    }
  }
  return event;
}

std::vector<Event> read_events(const std::string& path) {
  const std::string bytes = test::get_file(path);
  Reader reader(bytes);
  std::vector<Event> events;
  while (!reader.at_end() && !testing::Test::HasFailure()) {
    const std::string_view length = reader.take(8);
    EXPECT_EQ(unmasked(reader.fixed(4)), crc32c(length));
    const std::string_view data = reader.take(Reader(length).fixed(8));
    EXPECT_EQ(unmasked(reader.fixed(4)), crc32c(data));
    events.push_back(read_event(data));
  }
  return events;
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files.push_back(entry.path().string());
  }
  std::ranges::sort(files);
  return files;
}

class EventFileTest : public test::RunFixture {};

TEST_F(EventFileTest, ChecksumsAreThoseOfTheStandard) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);              // The check value of CRC-32C.
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);    // RFC 3720, B.4.
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);  // The same.
}

TEST_F(EventFileTest, WhatIsWrittenIsReadBack) {
  VOLTA_ASSERT_OK(EventFile file, EventFile::create(dir_.file("t"), 0, 1700000000.0));
  const std::vector<Scalar> values = {{"loss", 4.25}, {"lr", 1e-3}};
  VOLTA_ASSERT_STATUS(file.write(300, 1700000001.5, values));
  const auto files = files_in(dir_.file("t"));
  ASSERT_EQ(files.size(), 1u);
  EXPECT_THAT(files[0], HasSubstr("events.out.tfevents.1700000000.volta"));
  const auto events = read_events(files[0]);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[0].time, 1700000000.0);
  EXPECT_EQ(events[1].step, 300);
  EXPECT_EQ(events[1].time, 1700000001.5);
  EXPECT_EQ(events[1].values, (std::map<std::string, float>{{"loss", 4.25f}, {"lr", 1e-3f}}));
  // A second one at the same time has another name.
  VOLTA_ASSERT_OK(const EventFile other, EventFile::create(dir_.file("t"), 7, 1700000000.0));
  ASSERT_EQ(files_in(dir_.file("t")).size(), 2u);
  const auto restart = read_events(files_in(dir_.file("t"))[1]);
  ASSERT_EQ(restart.size(), 2u);
  EXPECT_TRUE(restart[1].restart);
  EXPECT_EQ(restart[1].step, 8);
}

TEST_F(EventFileTest, ARunWritesItsMetrics) {
  RunOptions o = options("run");
  o.tensorboard = true;
  stop_after_ = 7;
  EXPECT_FALSE(train(o));
  stop_after_ = 0;
  o.resume = true;
  ASSERT_TRUE(train(o));
  VOLTA_ASSERT_OK(const auto metrics, read_metrics(o.out + "/metrics.jsonl"));
  std::map<std::int64_t, Event> steps;
  const auto files = files_in(o.out + "/tensorboard");
  EXPECT_EQ(files.size(), 2u);
  for (const std::string& file : files) {
    for (const Event& event : read_events(file)) {
      if (!event.values.empty()) steps[event.step] = event;
    }
  }
  ASSERT_EQ(steps.size(), metrics.size());
  for (const MetricsRecord& record : metrics) {
    const auto& values = steps[record.step].values;
    EXPECT_EQ(values.at("loss"), static_cast<float>(record.loss));
    EXPECT_EQ(values.at("lr"), static_cast<float>(record.lr));
    EXPECT_EQ(values.at("grad_norm"), static_cast<float>(record.grad_norm));
    EXPECT_EQ(values.contains("val_loss"), record.val_loss.has_value());
  }
  EXPECT_FALSE(std::filesystem::exists(dir_.file("plain") + "/tensorboard"));
}

// Figures that cannot be written cost no training.
TEST_F(EventFileTest, ATrainingRunGoesOnWithoutThem) {
  RunOptions o = options("run");
  o.tensorboard = true;
  std::filesystem::create_directories(o.out);
  test::put_file(o.out + "/tensorboard", "a file");
  VOLTA_ASSERT_OK(const RunResult result, train(o));
  EXPECT_EQ(result.steps, 20);
  EXPECT_THAT(messages_, HasSubstr("tensorboard"));
}

TEST_F(EventFileTest, NothingIsWrittenThroughALink) {
  const test::TempDir dir;
  std::filesystem::create_directory(dir.file("elsewhere"));
  std::filesystem::create_directory_symlink(dir.file("elsewhere"), dir.file("tensorboard"));
  test::expect_error(EventFile::create(dir.file("tensorboard"), 0, 1.0), ErrorCode::kInvalidFile,
                     "is a symbolic link");
  EXPECT_TRUE(std::filesystem::is_empty(dir.file("elsewhere")));
}

}  // namespace
}  // namespace volta
