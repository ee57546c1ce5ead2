// The messages of earlier conversations, in a file with one per line (line breaks and backslashes
// escaped), readable by the user alone. Knows no terminal.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace volta::cli {

class History {
 public:
  /// Reads the newest messages of the file at `path`: 1,000 at most, from its last 64 MiB. A file
  /// that is missing or unreadable gives none. An empty path: nothing is stored.
  explicit History(std::string path);
  /// The oldest first.
  const std::vector<std::string>& entries() const { return entries_; }
  /// Adds a message that is not the last one again, and appends it to the file. The first call also
  /// cuts a file that has more messages than the constructor reads. Returns kIo or kInvalidFile
  /// when the file cannot be written: the message is in entries() nevertheless, and later ones are
  /// not written. When the file can be written but not be cut, it stays as it is, and later
  /// messages are written.
  Status add(const std::string& entry);

 private:
  Status store(const std::string& entry);

  std::string path_;
  std::vector<std::string> entries_;
  bool is_too_long_ = false;  // The file has more than what was read.
};

/// VOLTA_HISTORY, or chat_history in VOLTA_CACHE_DIR, or in ~/.volta; empty when VOLTA_HISTORY is
/// set to nothing.
std::string history_path();

}  // namespace volta::cli
