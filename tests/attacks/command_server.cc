// The command line as a server: runs one command after the other, each in a fork of a process that
// has been started and linked once. An attack costs milliseconds, under the sanitizers too, and
// what it does to the process ends with the fork. tests/support/program.py asks.
//
// Linked with every object of the command line and with --wrap=main: the program starts in
// __wrap_main below, and __real_main is the command line's main.
//
// A request is its length (4 bytes, little-endian) followed by that many bytes: fields that each
// end in NUL. The fields are the working folder, the files for standard output and standard error,
// the limits in seconds and resident bytes, the number of environment variables, these variables
// (NAME=VALUE), and the arguments. An answer is one line:
// the status of wait4, the peak of resident KB, the seconds by the clock, those of computing, and
// which limit was met (time, memory or none).
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

extern "C" int __real_main(int argc, char** argv);  // NOLINT(bugprone-reserved-identifier)

namespace {

/// After an interruption.
constexpr double kSecondsToEnd = 5.0;

struct Request {
  std::string folder, out, err;
  double seconds = 0.0;
  long bytes = 0;
  std::vector<std::string> environment;
  std::vector<std::string> arguments;
};

// Nothing at the end of the requests.
std::optional<Request> read_request() {
  std::uint32_t size = 0;
  if (std::fread(&size, sizeof size, 1, stdin) != 1) return std::nullopt;
  std::string text(size, '\0');
  if (std::fread(text.data(), 1, size, stdin) != size) return std::nullopt;
  std::size_t at = 0;
  const auto word = [&] {
    const std::size_t end = text.find('\0', at);
    std::string found = text.substr(at, end - at);
    at = end + 1;
    return found;
  };
  Request request;
  for (std::string* path : {&request.folder, &request.out, &request.err}) *path = word();
  request.seconds = std::atof(word().c_str());
  request.bytes = std::atol(word().c_str());
  for (int variables = std::atoi(word().c_str()); variables > 0; --variables) {
    request.environment.push_back(word());
  }
  while (at < text.size()) request.arguments.push_back(word());
  return request;
}

void open_as(int stream, const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags, 0666);
  if (fd < 0 || ::dup2(fd, stream) < 0) std::_Exit(125);
  ::close(fd);
}

[[noreturn]] void run(const Request& request) {
  ::setsid();
  constexpr rlimit kNoCore = {0, 0};
  ::setrlimit(RLIMIT_CORE, &kNoCore);
  constexpr rlimit kLargestFile = {rlim_t{1} << 31, rlim_t{1} << 31};
  ::setrlimit(RLIMIT_FSIZE, &kLargestFile);
  open_as(STDIN_FILENO, "/dev/null", O_RDONLY);
  open_as(STDOUT_FILENO, request.out, O_WRONLY | O_CREAT | O_TRUNC);
  open_as(STDERR_FILENO, request.err, O_WRONLY | O_CREAT | O_TRUNC);
  if (::chdir(request.folder.c_str()) != 0) std::_Exit(125);
  static std::vector<std::string> environment = request.environment;  // putenv keeps them.
  for (std::string& variable : environment) ::putenv(variable.data());
  static std::vector<std::string> words = {"volta"};
  words.insert(words.end(), request.arguments.begin(), request.arguments.end());
  static std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::exit(__real_main(static_cast<int>(words.size()), argv.data()));
}

long resident_bytes(pid_t process) {
  const std::string path = "/proc/" + std::to_string(process) + "/statm";
  std::FILE* file = std::fopen(path.c_str(), "r");
  if (file == nullptr) return 0;
  long size = 0, resident = 0;
  if (std::fscanf(file, "%ld %ld", &size, &resident) != 2) resident = 0;
  std::fclose(file);
  return resident * ::sysconf(_SC_PAGESIZE);
}

void serve(const Request& request) {
  using Clock = std::chrono::steady_clock;
  const auto begun = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begun).count(); };
  const pid_t process = ::fork();
  if (process == 0) run(request);
  const int handle = static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
  const char* limit = "none";
  for (pollfd waiting = {handle, POLLIN, 0}; ::poll(&waiting, 1, 10) == 0;) {
    const bool large = resident_bytes(process) > request.bytes;
    const double late = seconds() - request.seconds;
    if (!large && late <= 0) continue;
    // Whoever takes too long is asked to end first.
    if (limit == std::string_view("none")) ::kill(process, SIGINT);
    limit = large ? "memory" : "time";
    if (!large && late < kSecondsToEnd) continue;
    ::kill(process, SIGKILL);
    break;
  }
  int status = 0;
  rusage usage = {};
  ::wait4(process, &status, 0, &usage);
  ::close(handle);
  const auto of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  std::printf("%d %ld %.6f %.6f %s\n", status, usage.ru_maxrss, seconds(),
              of(usage.ru_utime) + of(usage.ru_stime), limit);
  std::fflush(stdout);
}

}  // namespace

extern "C" int __wrap_main(int, char**) {  // NOLINT(bugprone-reserved-identifier)
  while (const std::optional<Request> request = read_request()) serve(*request);
  return 0;
}
