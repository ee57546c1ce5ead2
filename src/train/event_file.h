// Event files of TensorBoard: a run's figures as scalars, in TFRecord framing with masked CRC-32C,
// each record an Event of TensorFlow's protocol buffers. TensorBoard reads all event files below
// the folder that it is given.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/result.h"

namespace volta {

/// CRC-32C (Castagnoli, RFC 3720) of the bytes.
std::uint32_t crc32c(std::string_view bytes);

/// What the names of event files begin with.
inline constexpr std::string_view kEventFilePrefix = "events.out.tfevents.";

/// A tag such as "loss", and its value.
using Scalar = std::pair<std::string_view, double>;

class EventFile {
 public:
  /// Creates a new file in `directory`, which is created when missing. Its name has the time
  /// (seconds since 1970), which must not be before that of an older file. After a resume at
  /// `steps_done`, TensorBoard drops later steps of older files. kIo.
  static Result<EventFile> create(const std::string& directory, std::int64_t steps_done,
                                  double time);
  /// Appends the values of a step, and passes them to the system. After an error all further calls
  /// fail.
  Status write(std::int64_t step, double time, std::span<const Scalar> values);

 private:
  explicit EventFile(FileWriter file) : file_(std::move(file)) {}
  Status append(std::string_view event);

  FileWriter file_;
};

}  // namespace volta
