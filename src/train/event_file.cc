#include "train/event_file.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstddef>

#include "base/error.h"

namespace volta {
namespace {

// The reflected polynomial of CRC-32C.
constexpr std::uint32_t kPolynomial = 0x82F63B78u;
constexpr auto kCrcTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? kPolynomial : 0u);
    table[byte] = crc;
  }
  return table;
}();

// TFRecord stores checksums rotated and offset, because a checksum of data that contains checksums
// is weak.
std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8u;
}

// Little-endian, whatever the machine is.
void append_fixed(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
}

void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7F) | 0x80);
  out += static_cast<char>(value);
}

// Fields of protocol buffers: a number and a wire type (0 varint, 1 and 5 fixed, 2 bytes).
void append_tag(std::string& out, std::uint32_t field, std::uint32_t wire_type) {
  append_varint(out, field << 3 | wire_type);
}
void append_number(std::string& out, std::uint32_t field, std::int64_t value) {
  append_tag(out, field, 0);
  append_varint(out, static_cast<std::uint64_t>(value));
}
void append_double(std::string& out, std::uint32_t field, double value) {
  append_tag(out, field, 1);
  append_fixed(out, std::bit_cast<std::uint64_t>(value), 8);
}
void append_float(std::string& out, std::uint32_t field, float value) {
  append_tag(out, field, 5);
  append_fixed(out, std::bit_cast<std::uint32_t>(value), 4);
}
void append_bytes(std::string& out, std::uint32_t field, std::string_view bytes) {
  append_tag(out, field, 2);
  append_varint(out, bytes.size());
  out += bytes;
}

// Field numbers of tensorflow/core/util/event.proto and framework/summary.proto.
enum EventField : std::uint32_t {
  kWallTime = 1,
  kStep = 2,
  kVersion = 3,
  kSummary = 5,
  kSession = 7
};
enum SummaryField : std::uint32_t { kValue = 1, kTag = 1, kSimpleValue = 2 };
constexpr std::int64_t kSessionStart = 1;

std::string event(double time, std::int64_t step) {
  std::string out;
  append_double(out, kWallTime, time);
  if (step != 0) append_number(out, kStep, step);
  return out;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  }
  return ~crc;
}

Result<EventFile> EventFile::create(const std::string& directory, std::int64_t steps_done,
                                    double time) {
  if (is_link(directory)) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("'{}' is a symbolic link, and what a run writes stays in its folder: "
                            "remove the link",
                            directory));
  }
  VOLTA_TRY(create_directories(directory));
  std::string path;
  int number = 0;
  do {  // Two runs can begin within a second.
    path =
        join_path(directory, fmt::format("{}{:010.0f}.volta.{}", kEventFilePrefix, time, number));
    ++number;
  } while (path_exists(path));
  VOLTA_TRY(FileWriter writer, FileWriter::open(path, FileWriter::Mode::kCreate));
  EventFile file(std::move(writer));
  std::string first = event(time, 0);
  append_bytes(first, kVersion, "brain.Event:2");
  VOLTA_TRY(file.append(first));
  if (steps_done > 0) {
    std::string session;
    append_number(session, 1, kSessionStart);
    std::string restart = event(time, steps_done + 1);
    append_bytes(restart, kSession, session);
    VOLTA_TRY(file.append(restart));
  }
  VOLTA_TRY(file.file_.flush());
  return file;
}

Status EventFile::write(std::int64_t step, double time, std::span<const Scalar> values) {
  std::string summary;
  for (const auto& [tag, number] : values) {
    std::string value;
    append_bytes(value, kTag, tag);
    append_float(value, kSimpleValue, static_cast<float>(number));
    append_bytes(summary, kValue, value);
  }
  std::string out = event(time, step);
  append_bytes(out, kSummary, summary);
  VOLTA_TRY(append(out));
  return file_.flush();
}

// A record: the length and its checksum, the event and its checksum.
Status EventFile::append(std::string_view event) {
  std::string record;
  append_fixed(record, event.size(), 8);
  append_fixed(record, masked_crc(record), 4);
  record += event;
  append_fixed(record, masked_crc(event), 4);
  return file_.write(record);
}

}  // namespace volta
