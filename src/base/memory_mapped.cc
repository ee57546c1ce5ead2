// File mappings, and the guard that replaces the missing part of a truncated file by zeros. Inside
// the raw-memory fence.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>

#include "base/arithmetic.h"
#include "base/descriptor.h"
#include "base/memory.h"
#include "base/system_error.h"

namespace volta {
namespace {

// A mapping, for the signal handler. The slots are global, because the handler is. Their number is
// fixed and they have no locks, because a handler may neither allocate nor wait.
struct GuardSlot {
  std::atomic<std::byte*> begin = nullptr;  ///< Null while the slot is free.
  std::atomic<std::uintptr_t> bytes = 0;    ///< A whole number of pages.
  std::atomic<bool> taken = false;
  std::atomic<bool> faulted = false;
};
// A model has at most 4096 shards. A mapping without a slot is not guarded.
constexpr unsigned kGuardSlots = 8192;
constinit std::array<GuardSlot, kGuardSlots> g_slots{};
constinit std::atomic<unsigned> g_next_slot = 0;
constinit struct sigaction g_previous{};

std::uintptr_t page_bytes() { return static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE)); }

// Takes a slot for a new mapping and returns its index; -1 if none is free.
int enter(std::byte* begin, std::uintptr_t bytes) {
  const unsigned first = g_next_slot.fetch_add(1, std::memory_order_relaxed);
  for (unsigned i = 0; i < kGuardSlots; ++i) {
    const unsigned place = (first + i) % kGuardSlots;
    GuardSlot& slot = g_slots[place];
    if (slot.taken.exchange(true)) continue;
    const std::uintptr_t page = page_bytes();
    slot.faulted = false;
    slot.bytes = round_up(bytes, page);
    slot.begin = begin;
    return static_cast<int>(place);
  }
  return -1;
}

void leave(int place) {
  GuardSlot& slot = g_slots[static_cast<std::size_t>(place)];
  slot.begin = nullptr;
  slot.taken = false;
}

// Called by the handler: maps zeros from the page of this address to the end of its mapping. False
// if the address is in no mapping.
bool fill_with_zeros(const void* address) {
  for (GuardSlot& slot : g_slots) {
    std::byte* const begin = slot.begin;
    const std::uintptr_t bytes = slot.bytes;
    const std::uintptr_t place =
        reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(begin);
    if (begin == nullptr || place >= bytes) continue;
    const std::uintptr_t from = place / page_bytes() * page_bytes();
    // SAFETY: these are whole pages of one of our own read-only mappings, which its owner is
    // reading. Readers see zeros in place of the missing bytes. This makes the system call
    // directly, because sanitizers wrap mmap() in code that is not safe in signal handlers.
    const long zeros = ::syscall(SYS_mmap, begin + from, bytes - from, PROT_READ,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    slot.faulted = true;
    return zeros != -1;
  }
  return false;
}

// Uses only operations that are safe in a signal handler: atomics, mmap, sysconf, signal and raise.
void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  // With other codes (a signal that a process has sent) there is no address.
  const bool filled = info->si_code == BUS_ADRERR && fill_with_zeros(info->si_addr);
  if (!filled) {
    if ((g_previous.sa_flags & SA_SIGINFO) != 0) {
      g_previous.sa_sigaction(signal, info, context);
    } else if (g_previous.sa_handler != SIG_DFL && g_previous.sa_handler != SIG_IGN) {
      g_previous.sa_handler(signal);
    } else {
      ::signal(signal, SIG_DFL);
      ::raise(signal);  // Takes effect when the handler returns.
    }
  }
  errno = saved_errno;
}

}  // namespace

void install_mapping_guard() {
  [[maybe_unused]] static const bool once = [] {
    struct sigaction action{};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
    ::sigemptyset(&action.sa_mask);
    return ::sigaction(SIGBUS, &action, &g_previous) == 0;
  }();
}

MappedFile::Identity MappedFile::identity_of(const struct stat& info) {
  return {.device = info.st_dev,
          .inode = info.st_ino,
          .size = info.st_size,
          .modified_s = info.st_mtim.tv_sec,
          .modified_ns = info.st_mtim.tv_nsec};
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  // O_NONBLOCK prevents waiting for the other end of a named pipe.
  VOLTA_TRY(const Descriptor fd, open_file(path, O_RDONLY | O_NONBLOCK, "open"));
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) return fail_system("examine", path, errno);
  if (!S_ISREG(info.st_mode)) {
    return fail(ErrorCode::kInvalidFile, fmt::format("'{}' is not a regular file", path));
  }
  if (info.st_size == 0) return MappedFile();
  // SAFETY: this is a new private read-only mapping of the whole file. It outlives the descriptor,
  // and only the MappedFile owns it.
  void* data =
      ::mmap(nullptr, static_cast<std::size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) return fail_system("map", path, errno);
  MappedFile file;
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = info.st_size;
  file.path_ = path;
  file.identity_ = identity_of(info);
  file.guard_slot_ =
      enter(static_cast<std::byte*>(data), static_cast<std::uintptr_t>(info.st_size));
  return file;
}

void MappedFile::release(std::int64_t offset, std::int64_t length) const {
  const std::int64_t page = static_cast<std::int64_t>(page_bytes());
  const std::int64_t begin = round_up(offset, page);
  const std::int64_t end = (offset + length) / page * page;
  if (begin >= end) return;
  // SAFETY: these are whole pages of our own private mapping, which nobody has written to, so
  // dropping them loses nothing. This is only advice: a failure costs memory, not data.
  ::madvise(const_cast<std::byte*>(data_ + begin), static_cast<std::size_t>(end - begin),
            MADV_DONTNEED);
}

Status MappedFile::check_unchanged() const {
  const bool faulted =
      guard_slot_ != kNoSlot && g_slots[static_cast<std::size_t>(guard_slot_)].faulted;
  struct stat info = {};
  const bool there = data_ != nullptr && ::stat(path_.c_str(), &info) == 0;
  if (!faulted && (!there || identity_of(info) == identity_)) return {};
  if (there && info.st_size < identity_.size) {
    return fail(
        ErrorCode::kInvalidFile,
        fmt::format("'{}' was cut from {} to {} bytes while it was read; wait until nothing "
                    "writes to it, and check that it is whole",
                    path_, identity_.size, std::int64_t{info.st_size}));
  }
  return fail(ErrorCode::kInvalidFile,
              fmt::format("'{}' {} while it was read; wait until nothing writes to it, then try "
                          "again",
                          path_, faulted ? "could not be read to its end" : "was changed"));
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  std::swap(identity_, other.identity_);
  std::swap(guard_slot_, other.guard_slot_);
  return *this;
}

MappedFile::~MappedFile() {
  if (guard_slot_ != kNoSlot) leave(guard_slot_);
  // SAFETY: munmap takes a mutable pointer but writes nothing through it; the mapping is ours.
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), static_cast<std::size_t>(size_));
}

}  // namespace volta
