// A library for LD_PRELOAD that makes one system or library call of a program fail, or kills the
// program there. tests/faults/run drives it; it works with programs without sanitizers.
//
//   VOLTA_FAULT_CALL    open, create, read, write, fsync, rename, unlink, mkdir, mmap, malloc or
//                       thread (each stands for its family)
//   VOLTA_FAULT_NUMBER  which call of the family, from 1; 0 or absent: none, calls are counted
//   VOLTA_FAULT_TIMES   how many calls from that one on (default 1; 0: all of them; of threads: the
//                       number is the first that cannot live beside the others)
//   VOLTA_FAULT_ERRNO   the number of the error, or `kill`
//   VOLTA_FAULT_UNDER   only files below this folder count (the families of files; mmap of files)
//   VOLTA_FAULT_COUNTS  a file that gets the number of calls of each family when the program ends
//
// Everything here must work before the C++ library has been set up and inside malloc: no
// allocation, no C++ containers, no standard streams. It can count allocations of one program run
// to the next only where they do not depend on chance, which is the driver's business.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>

// glibc's own allocator, which the shim stands in front of.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* block, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
}

namespace {

enum Family {
  kOpen,
  kCreate,
  kRead,
  kWrite,
  kFsync,
  kRename,
  kUnlink,
  kMkdir,
  kMmap,
  kMalloc,
  kThread
};
constexpr std::array<const char*, 11> kNames = {"open",  "create", "read",   "write",
                                                "fsync", "rename", "unlink", "mkdir",
                                                "mmap",  "malloc", "thread"};
constexpr int kMostDescriptors = 4096;

struct Settings {
  int family = -1;
  long number = 0;
  long times = 1;
  int error = 0;
  bool kills = false;
  const char* under = nullptr;
  const char* counts = nullptr;
};

// Zero-initialised, so that they serve calls that come before any constructor has run.
std::atomic<bool> g_ready;
Settings g_settings;
std::atomic<long> g_calls[kNames.size()];
std::atomic<long> g_threads;                  // That live, where they are limited.
std::atomic<bool> g_below[kMostDescriptors];  // Whether a descriptor is of a file that counts.

[[gnu::constructor(101)]] void read_settings() {
  const auto number = [](const char* name, long otherwise) {
    const char* text = getenv(name);
    return text == nullptr ? otherwise : strtol(text, nullptr, 10);
  };
  if (const char* call = getenv("VOLTA_FAULT_CALL")) {
    for (unsigned i = 0; i < kNames.size(); ++i) {
      if (strcmp(call, kNames[i]) == 0) g_settings.family = static_cast<int>(i);
    }
  }
  g_settings.number = number("VOLTA_FAULT_NUMBER", 0);
  g_settings.times = number("VOLTA_FAULT_TIMES", 1);
  const char* error = getenv("VOLTA_FAULT_ERRNO");
  g_settings.kills = error != nullptr && strcmp(error, "kill") == 0;
  g_settings.error = error == nullptr || g_settings.kills ? EIO : atoi(error);
  g_settings.under = getenv("VOLTA_FAULT_UNDER");
  g_settings.counts = getenv("VOLTA_FAULT_COUNTS");
  g_ready = true;
}

// Counts a call; true if it is to fail, with errno set.
bool fails(Family family) {
  if (!g_ready) return false;
  const long call = ++g_calls[family];
  if (g_settings.family != family || g_settings.number == 0 || call < g_settings.number) {
    return false;
  }
  if (g_settings.times != 0 && call >= g_settings.number + g_settings.times) return false;
  if (g_settings.kills) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
  }
  errno = g_settings.error;
  return true;
}

// Writes the counts by bare system calls: this runs while the program ends.
[[gnu::destructor(101)]] void write_counts() {
  if (g_settings.counts == nullptr) return;
  std::array<char, 512> text{};
  int size = 0;
  for (unsigned i = 0; i < kNames.size(); ++i) {
    size += snprintf(text.data() + size, text.size() - static_cast<unsigned>(size), "%s %ld\n",
                     kNames[i], g_calls[i].load());
  }
  const long fd =
      syscall(SYS_openat, AT_FDCWD, g_settings.counts, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd >= 0) syscall(SYS_write, fd, text.data(), static_cast<size_t>(size));
}

bool below(const char* path) {
  if (!g_ready) return false;
  if (g_settings.under == nullptr) return true;
  if (path == nullptr) return false;
  return strncmp(path, g_settings.under, strlen(g_settings.under)) == 0;
}

bool below(int fd) { return fd >= 0 && fd < kMostDescriptors && g_below[fd]; }

void remember(int fd, bool counts) {
  if (fd >= 0 && fd < kMostDescriptors) g_below[fd] = counts;
}

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

int opened(const char* path, int folder, int flags, mode_t mode) {
  const bool counts = below(path);
  if (counts && fails((flags & O_CREAT) != 0 ? kCreate : kOpen)) return -1;
  const int fd = static_cast<int>(syscall(SYS_openat, folder, path, flags, mode));
  remember(fd, counts);
  return fd;
}

// What a thread was started for, where threads are counted while they live.
struct Work {
  void* (*run)(void*);
  void* argument;
};

void* run_and_count(void* work) {
  const Work copy = *static_cast<Work*>(work);
  free(work);
  void* const result = copy.run(copy.argument);
  --g_threads;
  return result;
}

mode_t mode_of(int flags, va_list arguments) {
  const bool creates = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  return creates ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return opened(path, AT_FDCWD, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return opened(path, AT_FDCWD, flags | O_LARGEFILE, mode);
}

// Paths relative to a folder of the program's count as files below, since nothing says otherwise.
int openat(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  const bool counts = path[0] == '/' ? below(path) : below(folder);
  if (counts && fails((flags & O_CREAT) != 0 ? kCreate : kOpen)) return -1;
  const int fd = static_cast<int>(syscall(SYS_openat, folder, path, flags, mode));
  remember(fd, counts);
  return fd;
}

DIR* opendir(const char* path) {
  if (below(path) && fails(kOpen)) return nullptr;
  static auto* const real = next<DIR*(const char*)>("opendir");
  return real(path);
}

ssize_t read(int fd, void* buffer, size_t size) {
  if (below(fd) && fails(kRead)) return -1;
  return syscall(SYS_read, fd, buffer, size);
}

ssize_t pread(int fd, void* buffer, size_t size, off_t offset) {
  if (below(fd) && fails(kRead)) return -1;
  return syscall(SYS_pread64, fd, buffer, size, offset);
}

ssize_t pread64(int fd, void* buffer, size_t size, off64_t offset) {
  return pread(fd, buffer, size, offset);
}

ssize_t write(int fd, const void* buffer, size_t size) {
  if (below(fd) && fails(kWrite)) return -1;
  return syscall(SYS_write, fd, buffer, size);
}

ssize_t pwrite(int fd, const void* buffer, size_t size, off_t offset) {
  if (below(fd) && fails(kWrite)) return -1;
  return syscall(SYS_pwrite64, fd, buffer, size, offset);
}

ssize_t pwrite64(int fd, const void* buffer, size_t size, off64_t offset) {
  return pwrite(fd, buffer, size, offset);
}

int ftruncate(int fd, off_t size) {
  if (below(fd) && fails(kWrite)) return -1;
  return static_cast<int>(syscall(SYS_ftruncate, fd, size));
}

int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

int fsync(int fd) {
  if (below(fd) && fails(kFsync)) return -1;
  return static_cast<int>(syscall(SYS_fsync, fd));
}

int fdatasync(int fd) {
  if (below(fd) && fails(kFsync)) return -1;
  return static_cast<int>(syscall(SYS_fdatasync, fd));
}

int sync_file_range(int fd, off64_t offset, off64_t size, unsigned flags) {
  if (below(fd) && fails(kFsync)) return -1;
  return static_cast<int>(syscall(SYS_sync_file_range, fd, offset, size, flags));
}

int rename(const char* from, const char* to) noexcept {
  if (below(to) && fails(kRename)) return -1;
  return static_cast<int>(syscall(SYS_rename, from, to));
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) noexcept {
  if (below(to) && fails(kRename)) return -1;
  return static_cast<int>(syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

int unlink(const char* path) noexcept {
  if (below(path) && fails(kUnlink)) return -1;
  return static_cast<int>(syscall(SYS_unlink, path));
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  if ((path[0] == '/' ? below(path) : below(folder)) && fails(kUnlink)) return -1;
  return static_cast<int>(syscall(SYS_unlinkat, folder, path, flags));
}

int rmdir(const char* path) noexcept {
  if (below(path) && fails(kUnlink)) return -1;
  return static_cast<int>(syscall(SYS_rmdir, path));
}

int mkdir(const char* path, mode_t mode) noexcept {
  if (below(path) && fails(kMkdir)) return -1;
  return static_cast<int>(syscall(SYS_mkdir, path, mode));
}

void* mmap(void* address, size_t size, int protection, int flags, int fd, off_t offset) noexcept {
  if (below(fd) && fails(kMmap)) return MAP_FAILED;
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, size, protection, flags, fd, offset));
}

void* mmap64(void* address, size_t size, int protection, int flags, int fd,
             off64_t offset) noexcept {
  return mmap(address, size, protection, flags, fd, offset);
}

int close(int fd) {
  remember(fd, false);
  return static_cast<int>(syscall(SYS_close, fd));
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) noexcept {
  const bool failed = fails(kThread);
  // With a limit it is not the number of the call that counts, but that of the threads there are.
  const bool limited = g_settings.family == kThread && g_settings.times == 0;
  if (limited ? ++g_threads >= g_settings.number : failed) {
    if (limited) --g_threads;
    return g_settings.error;
  }
  using Create = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static auto* const real = next<Create>("pthread_create");
  if (!limited) return real(thread, attributes, run, argument);
  auto* const work = static_cast<Work*>(__libc_malloc(sizeof(Work)));
  *work = {run, argument};
  return real(thread, attributes, run_and_count, work);
}

void* malloc(size_t size) noexcept { return fails(kMalloc) ? nullptr : __libc_malloc(size); }

void* calloc(size_t count, size_t size) noexcept {
  return fails(kMalloc) ? nullptr : __libc_calloc(count, size);
}

void* realloc(void* block, size_t size) noexcept {
  return fails(kMalloc) ? nullptr : __libc_realloc(block, size);
}

void* aligned_alloc(size_t alignment, size_t size) noexcept {
  return fails(kMalloc) ? nullptr : __libc_memalign(alignment, size);
}

void* memalign(size_t alignment, size_t size) noexcept {
  return fails(kMalloc) ? nullptr : __libc_memalign(alignment, size);
}

int posix_memalign(void** block, size_t alignment, size_t size) noexcept {
  if (fails(kMalloc)) return ENOMEM;
  *block = __libc_memalign(alignment, size);
  return *block == nullptr ? ENOMEM : 0;
}

}  // extern "C"
