// Messages to the user: standard error and the --log-file. See command.h.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <string>
#include <string_view>
#include <system_error>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "command.h"

namespace volta::cli {
namespace {

std::atomic<bool> g_quiet = false;  // The handler of signals reads it.
std::FILE* g_log = nullptr;         // Open until the process ends.
std::string g_log_path;
bool g_log_has_failed = false;

// "2026-01-31T12:00:00", local time.
std::string now() {
  const std::time_t time = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&time, &local);
  std::array<char, 32> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &local);
  return std::string(text.data(), length);
}

// Whether the file at `path`, which exists, can be continued: it is empty or begins with a time.
bool is_log(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return true;  // Opening it for writing tells what is wrong.
  std::array<char, 11> beginning{};
  const std::size_t length = std::fread(beginning.data(), 1, beginning.size(), file);
  std::fclose(file);
  constexpr std::string_view kForm = "0000-00-00T";
  const auto fits = [](char c, char form) {
    return form == '0' ? std::isdigit(static_cast<unsigned char>(c)) != 0 : c == form;
  };
  return length == 0 || (length == kForm.size() && std::ranges::equal(beginning, kForm, fits));
}

// Warns once. The work goes on, and so do attempts to write: space may become free again.
void warn_of_lost_lines(int error_number) {
  if (g_log_has_failed) return;
  g_log_has_failed = true;
  note_raw(escape_controls(
      fmt::format("volta: warning: --log-file: cannot write '{}': {}; the log will lack messages\n",
                  g_log_path, std::generic_category().message(error_number))));
}

}  // namespace

void be_quiet() { g_quiet = true; }
bool is_quiet() { return g_quiet; }

Status open_log_file(const std::string& path) {
  if (path_exists(path)) {
    if (const auto size = file_size(path); !size) {  // Only a regular file has one.
      return fail(ErrorCode::kIo, fmt::format("--log-file: {}", size.error().message()));
    }
    if (!is_log(path)) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--log-file {}: the file that is there is not a log of Volta; choose "
                              "another place",
                              path));
    }
  }
  if (!path_exists(path)) VOLTA_TRY(make_folder_of(path, "--log-file"));
  g_log = std::fopen(path.c_str(), "ae");
  g_log_path = path;
  if (g_log != nullptr) return {};
  return fail(ErrorCode::kIo, fmt::format("--log-file: cannot open '{}': {}", path,
                                          std::generic_category().message(errno)));
}

void log_to_file(std::string_view text) {
  while (g_log != nullptr && !text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string line = one_line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    const bool written = std::fputs(fmt::format("{} {}\n", now(), line).c_str(), g_log) != EOF &&
                         std::fflush(g_log) != EOF;
    if (!written) warn_of_lost_lines(errno);
  }
}

void note(std::string_view text) {
  log_to_file(text);
  if (!g_quiet || text.starts_with("volta: ")) note_raw(escape_controls(text));
}

void note_raw(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace volta::cli
