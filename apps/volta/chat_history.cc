#include "chat_history.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/descriptor.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/temporary.h"
#include "base/text.h"

namespace volta::cli {
namespace {

constexpr std::ptrdiff_t kMostEntries = 1000;
// A message has 16 MiB at most, and twice as much with every byte escaped.
constexpr std::int64_t kMostBytes = std::int64_t{64} << 20;
constexpr std::int64_t kFirstBytes = std::int64_t{1} << 20;

std::string escape_entry(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 1);
  for (const char c : text) {
    if (c == '\n' || c == '\\') out += '\\';
    out += c == '\n' ? 'n' : c;
  }
  return out;
}

std::string unescape_entry(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '\\' && i + 1 < text.size();
    if (escape) ++i;
    out += escape && text[i] == 'n' ? '\n' : text[i];
  }
  return out;
}

std::unexpected<Error> cannot(std::string_view action, const std::string& path) {
  return fail(ErrorCode::kIo, fmt::format("cannot {} '{}': {}", action, path,
                                          std::generic_category().message(errno)));
}

// The last `bytes` bytes of a file of `size` bytes.
Result<std::string> read_end(const Descriptor& file, std::int64_t size, std::int64_t bytes,
                             const std::string& path) {
  if (::lseek(file.get(), size - bytes, SEEK_SET) < 0) return cannot("read", path);
  std::string text(static_cast<std::size_t>(bytes), '\0');
  VOLTA_TRY(const std::int64_t got,
            read_up_to(file.get(), std::as_writable_bytes(std::span(text)), path));
  text.resize(static_cast<std::size_t>(got));
  return text;
}

// The newest lines of a file, as they are stored.
struct NewestLines {
  std::string text;
  bool all = true;  // The file has no others.
};

// Reads the end of the file: first 1 MiB, then twice as much until it holds enough lines, at most
// kMostBytes. So memory stays bounded for a file of any size.
Result<NewestLines> newest_lines(const Descriptor& file, const std::string& path) {
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) return cannot("examine", path);
  const std::int64_t size = info.st_size;
  NewestLines lines;
  for (std::int64_t bytes = kFirstBytes;; bytes *= 2) {
    const std::int64_t part = std::min(bytes, size);
    VOLTA_TRY(lines.text, read_end(file, size, part, path));
    lines.all = part == size;
    // One more than necessary: the first line may be incomplete.
    if (lines.all || std::ranges::count(lines.text, '\n') > kMostEntries || bytes >= kMostBytes) {
      break;
    }
  }
  std::size_t begin = lines.text.size();
  std::ptrdiff_t count = 0;
  while (begin > 0 && count < kMostEntries) {
    // The line ends at begin - 1, and begins behind the line break before.
    const std::size_t before = begin < 2 ? std::string::npos : lines.text.rfind('\n', begin - 2);
    if (before == std::string::npos && !lines.all) break;  // Its beginning was not read.
    begin = before == std::string::npos ? 0 : before + 1;
    ++count;
  }
  lines.all = lines.all && begin == 0;
  lines.text.erase(0, begin);
  return lines;
}

// Whether the path still leads to this open file, which another program may have replaced.
bool is_at(const Descriptor& file, const std::string& path) {
  struct stat open{}, there{};
  return ::fstat(file.get(), &open) == 0 && ::lstat(path.c_str(), &there) == 0 &&
         open.st_dev == there.st_dev && open.st_ino == there.st_ino;
}

// A history is written for its owner alone, and is cut: a file that others may read is none.
Status check_private(const Descriptor& file, const std::string& path) {
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) return cannot("examine", path);
  if (info.st_size == 0 || (info.st_mode & (S_IRWXG | S_IRWXO)) == 0) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is no history of volta chat, because others may read it; name "
                          "another file, or `chmod 600` it",
                          path));
}

struct OpenHistory {
  Descriptor file;
  bool locked = false;
};

// Opens the history to append to it. The lock keeps others from appending to a file that is being
// replaced by its newest lines. They hold it for milliseconds.
Result<OpenHistory> open_history(const std::string& path) {
  constexpr int kTries = 50;
  constexpr auto kWait = std::chrono::milliseconds(10);
  VOLTA_TRY(create_directories(parent_path(path)));
  for (int tries = 1;; ++tries) {
    VOLTA_TRY(Descriptor file, open_to_change(path, O_RDWR | O_APPEND | O_CREAT, "open"));
    VOLTA_TRY(check_private(file, path));
    VOLTA_TRY(const LockAttempt attempt, try_lock(file.get(), path));
    const bool locked = attempt == LockAttempt::kLocked;
    const bool final = attempt == LockAttempt::kNoLocks || tries == kTries;
    if (final || (locked && is_at(file, path))) return OpenHistory{std::move(file), locked};
    if (!locked) std::this_thread::sleep_for(kWait);
  }
}

Status append(const Descriptor& file, const std::string& entry, const std::string& path) {
  if (::fchmod(file.get(), S_IRUSR | S_IWUSR) != 0) return cannot("protect", path);
  std::string line = escape_entry(entry) + "\n";
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) return cannot("examine", path);
  if (info.st_size > 0) {
    // The last line has no end when a disk was full, or after an editor.
    VOLTA_TRY(const std::string end, read_end(file, info.st_size, 1, path));
    if (!end.ends_with('\n')) line.insert(0, 1, '\n');
  }
  return write_all(file.get(), as_bytes(line), path);
}

// Replaces the file by its newest lines, or leaves it as it is.
Status cut(const Descriptor& file, const std::string& path) {
  VOLTA_TRY(const NewestLines lines, newest_lines(file, path));
  // A file whose end has no line breaks is none of ours.
  if (lines.all || lines.text.empty()) return {};
  VOLTA_TRY(TemporaryFile temporary, create_temporary_file(path));
  const auto write_and_rename = [&]() -> Status {
    if (::fchmod(temporary.fd.get(), S_IRUSR | S_IWUSR) != 0) {
      return cannot("protect", temporary.path);
    }
    VOLTA_TRY(write_all(temporary.fd.get(), as_bytes(lines.text), temporary.path));
    VOLTA_TRY(fsync_file(temporary.fd.get(), temporary.path));
    VOLTA_TRY(temporary.fd.close(temporary.path));
    return rename_path(temporary.path, path);
  };
  Status done = write_and_rename();
  if (!done) ::unlink(temporary.path.c_str());
  return done;
}

Status with_context(Status status, const std::string& context) {
  if (status) return status;
  return std::unexpected(std::move(status).error().with_context(context));
}

}  // namespace

History::History(std::string path) : path_(std::move(path)) {
  if (path_ == "/dev/null") path_.clear();  // The usual name for nowhere.
  if (path_.empty()) return;
  // A pipe or a device would be waited for.
  if (!file_size(path_)) return;
  const auto file = open_file(path_, O_RDONLY | O_NONBLOCK, "open");
  const auto lines = file ? newest_lines(*file, path_) : Result<NewestLines>(NewestLines{});
  if (!lines) return;
  is_too_long_ = !lines->all;
  std::string_view rest = lines->text;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    if (!line.empty() && !find_invalid_utf8(line)) entries_.push_back(unescape_entry(line));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

Status History::add(const std::string& entry) {
  if (entry.empty() || (!entries_.empty() && entries_.back() == entry)) return {};
  entries_.push_back(entry);
  if (std::ssize(entries_) > kMostEntries) entries_.erase(entries_.begin());
  return path_.empty() ? Status() : store(entry);
}

Status History::store(const std::string& entry) {
  auto history = open_history(path_);
  Status stored = history ? append(history->file, entry, path_)
                          : Status(std::unexpected(std::move(history).error()));
  if (!stored) {
    path_.clear();
    return with_context(std::move(stored), "the history is not stored");
  }
  const bool cuts = std::exchange(is_too_long_, false) && history->locked;
  if (!cuts) return history->file.close(path_);
  return with_context(
      cut(history->file, path_),
      fmt::format("the history keeps more than its newest {} messages", kMostEntries));
}

std::string history_path() {
  if (const char* own = std::getenv("VOLTA_HISTORY")) return own;  // Empty: no history.
  if (const auto cache = environment("VOLTA_CACHE_DIR"); !cache.empty()) {
    return join_path(cache, "chat_history");
  }
  const std::string_view home = environment("HOME");
  return home.empty() ? "" : join_path(join_path(home, ".volta"), "chat_history");
}

}  // namespace volta::cli
