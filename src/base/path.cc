// Paths, links and folders on POSIX: those functions of base/file.h that open no file.
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/system_error.h"

namespace volta {
bool path_exists(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0;
}

bool is_directory(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool is_same_place(const std::string& a, const std::string& b) {
  struct stat first = {}, second = {};
  return stat(a.c_str(), &first) == 0 && stat(b.c_str(), &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

bool is_inside(const std::string& path, const std::string& folder) {
  for (std::string place = path;; place = parent_path(place)) {
    if (is_same_place(place, folder)) return true;
    if (place == "." || place == "/") return false;
  }
}

bool is_link(const std::string& path) {
  struct stat info = {};
  return lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode);
}

Result<std::string> read_link(const std::string& path) {
  std::string target(PATH_MAX, '\0');
  const ssize_t bytes = ::readlink(path.c_str(), target.data(), target.size());
  if (bytes < 0) return fail_system("read link", path, errno);
  target.resize(static_cast<std::size_t>(bytes));
  return target;
}

bool is_mount_point(const std::string& path) {
  struct statx info = {};
  return statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, 0, &info) == 0 &&
         (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

Result<std::vector<std::string>> list_directory(const std::string& path) {
  const auto close_folder = [](DIR* folder) { closedir(folder); };
  const std::unique_ptr<DIR, decltype(close_folder)> folder(opendir(path.c_str()), close_folder);
  if (!folder) return fail_system("list folder", path, errno);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;  // readdir returns null both at the end and on failure.
    const dirent* entry = readdir(folder.get());
    if (entry == nullptr) break;
    std::string name = std::data(entry->d_name);
    if (name != "." && name != "..") names.push_back(std::move(name));
  }
  if (errno != 0) return fail_system("list folder", path, errno);
  std::ranges::sort(names);
  return names;
}

namespace {

Status create_directory(const std::string& path) {
  if (is_directory(path)) return {};
  if (file_ops().mkdir(path, kFolderMode) == 0) return {};
  const int mkdir_errno = errno;
  if (mkdir_errno == EEXIST) {
    if (is_directory(path)) return {};  // Another process was faster.
    return fail(ErrorCode::kIo,
                fmt::format("cannot create folder '{}': what is there is no folder", path));
  }
  return fail_to_write("create folder", path, mkdir_errno);
}

Status remove_tree(const std::string& path) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return {};
    return fail_system("examine", path, errno);
  }
  if (!S_ISDIR(info.st_mode)) {
    if (file_ops().unlink(path) != 0) return fail_system("remove", path, errno);
    return {};
  }
  VOLTA_TRY(const std::vector<std::string> names, list_directory(path));
  for (const std::string& name : names) VOLTA_TRY(remove_tree(join_path(path, name)));
  if (file_ops().rmdir(path) != 0) return fail_system("remove folder", path, errno);
  return {};
}

}  // namespace

Status create_directories(const std::string& path) {
  if (path.empty()) return fail(ErrorCode::kInvalidArgument, "the name of a folder is empty");
  if (path.size() >= PATH_MAX) {  // Checked before any part of the path is made.
    return fail(ErrorCode::kIo,
                fmt::format("the name of a folder has {} bytes, more than the {} that the system "
                            "takes: '{}...'",
                            path.size(), PATH_MAX - 1, path.substr(0, 60)));
  }
  for (std::size_t end = 0; end != std::string::npos;) {
    end = path.find('/', end + 1);
    VOLTA_TRY(create_directory(path.substr(0, end)));
  }
  return {};
}

Status remove_all(const std::string& path) {
  const std::string name = file_name(path);
  if (name.empty() || name == "." || name == "..") {
    return fail(ErrorCode::kInvalidArgument, fmt::format("will not remove '{}'", path));
  }
  return remove_tree(path);
}

std::string join_path(std::string_view directory, std::string_view name) {
  if (directory.empty() || name.starts_with('/')) return std::string(name);
  if (name.empty()) return std::string(directory);
  return fmt::format("{}{}{}", directory, directory.ends_with('/') ? "" : "/", name);
}

namespace {

// The path without trailing slashes; "" for the root.
std::string_view trim_slashes(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  return path;
}

}  // namespace

Result<std::string> real_path(const std::string& path) {
  const auto free_text = [](char* text) { std::free(text); };
  const std::unique_ptr<char, decltype(free_text)> real(::realpath(path.c_str(), nullptr),
                                                        free_text);
  if (!real) return fail_system("resolve", path, errno);
  return std::string(real.get());
}

std::string parent_path(std::string_view path) {
  const std::string_view trimmed = trim_slashes(path);
  if (trimmed.empty()) return path.empty() ? "." : "/";
  const std::size_t slash = trimmed.rfind('/');
  if (slash == std::string_view::npos) return ".";
  const std::string_view parent = trim_slashes(trimmed.substr(0, slash));
  return parent.empty() ? "/" : std::string(parent);
}

std::string file_name(std::string_view path) {
  const std::string_view trimmed = trim_slashes(path);
  const std::size_t slash = trimmed.rfind('/');
  return std::string(slash == std::string_view::npos ? trimmed : trimmed.substr(slash + 1));
}

bool is_plain_file_name(std::string_view name) {
  constexpr std::string_view kOfPaths("/\\\0", 3);
  return !name.empty() && name.size() <= NAME_MAX && name != "." && name != ".." &&
         name.find_first_of(kOfPaths) == std::string_view::npos;
}

}  // namespace volta
