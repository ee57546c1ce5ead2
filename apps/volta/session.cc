// The shared parts of the subcommands: see command.h.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/descriptor.h"
#include "base/file.h"
#include "base/text.h"
#include "command.h"
#include "device/device_handle.h"
#include "device/device_kind.h"
#include "formats/adapter.h"
#include "formats/gguf/gguf_file.h"
#include "formats/model_source.h"
#include "train/adapter_base.h"
#include "train/run.h"
#include "train/run_folder.h"
#include "tuner/open_device.h"

namespace volta::cli {
namespace {

bool g_raw_output = false;
bool g_output_pipe_closed = false;
std::atomic<std::int64_t> g_first_signal = 0;  // Milliseconds of the monotonic clock; 0: no signal.

// A second signal ends the process at once, unless it comes within a second of the first. `timeout`
// and terminals signal both a process and its group, and a checkpoint is still to be written.
void on_signal(int signal) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t ms = std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000 + 1;
  std::int64_t first = 0;
  if (!g_first_signal.compare_exchange_strong(first, ms)) {
    if (ms - first < 1000) return;
    std::signal(signal, SIG_DFL);
    std::raise(signal);  // Takes effect when this handler returns.
    return;
  }
  if (is_quiet()) return;
  constexpr std::string_view kMessage = "\nvolta: ending; once more ends at once\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kMessage.data(), kMessage.size());
}

std::string_view output_name(Output output) {
  switch (output) {
    case Output::kText:
      return "text";
    case Output::kJson:
      return "json";
    case Output::kJsonLines:
      return "jsonl";
    case Output::kCsv:
      return "csv";
    case Output::kDot:
      return "dot";
  }
  return "?";
}

// Checks that `path` can be replaced: creates a temporary file beside it and removes it again.
Status try_file(const std::string& path) {
  VOLTA_TRY(FileWriter trial, FileWriter::open_temporary(path));
  VOLTA_TRY(trial.close());
  return remove_all(trial.path());
}

}  // namespace

int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return 2;
    case ErrorCode::kNotFound:
    case ErrorCode::kInvalidFile:
    case ErrorCode::kUnsupported:
      return 3;
    case ErrorCode::kOutOfMemory:
      return 4;
    case ErrorCode::kDevice:
      return 5;
    case ErrorCode::kMismatch:
      return 6;
    case ErrorCode::kInterrupted:
      return 130;
    case ErrorCode::kIo:
    case ErrorCode::kNonFinite:
    case ErrorCode::kInternal:
      return 1;
  }
  return 1;
}

Result<Output> parse_output(const Globals& globals, const std::vector<Output>& allowed) {
  std::string known;
  for (const Output output : allowed) {
    if (globals.output == output_name(output)) return output;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", output_name(output));
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--output {}: this command writes {}", globals.output, known));
}

Status refuse_unused(const Globals& globals, std::span<const std::string_view> names) {
  for (const std::string_view name : names) {
    if (!globals.has(name)) continue;
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} has no effect here: drop it", name));
  }
  return {};
}

Status refuse_unused(const Globals& globals, std::string_view name) {
  return refuse_unused(globals, std::span(&name, 1));
}

Result<std::vector<std::int32_t>> parse_ids(std::string_view text, std::string_view flag) {
  std::vector<std::int32_t> ids;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    VOLTA_TRY(const auto id, parse_int<std::int32_t>(text.substr(begin, end - begin), flag, 0));
    ids.push_back(id);
    begin = end + 1;
  }
  return ids;
}

Result<DType> compute_dtype(const Globals& globals) {
  if (globals.dtype == "f32") return DType::kF32;
  if (globals.dtype == "bf16") return DType::kBF16;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--dtype {}: use f32 or bf16", globals.dtype));
}

Result<DType> float_type(std::string_view word, std::string_view flag) {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (word == dtype_name(type)) return type;
  }
  return fail(ErrorCode::kInvalidArgument, fmt::format("{} {}: use f32, bf16 or f16", flag, word));
}

Option* add_kv_cache_dtype(Command& command, std::string& word) {
  return command
      .add_option("--kv-cache-dtype", word,
                  "what the KV cache keeps: f32, or bf16 or f16 in half the memory (default: f32; "
                  "on a GPU the compute type)")
      ->suggest({"f32", "bf16", "f16"});
}

Option* add_context_option(Command& command, std::optional<std::int64_t>& tokens,
                           std::string_view otherwise) {
  return command
      .add_option(
          "-c,--context,--ctx-size", tokens,
          fmt::format("tokens that prompt and answer have together (default: {})", otherwise))
      ->check(range(std::int64_t{1}, std::int64_t{1} << 31));
}

Result<std::int64_t> context_length(std::optional<std::int64_t> tokens,
                                    const TransformerConfig& model, std::int64_t otherwise) {
  if (!tokens) return std::min(otherwise, model.context);
  if (*tokens <= model.context) return *tokens;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--context {}: this model's context has {} tokens at most", *tokens,
                          model.context));
}

Result<DType> kv_cache_dtype(const std::string& word, const Session& session, DType compute) {
  if (word.empty()) return session.device()->inference_choices(compute).cache;
  return float_type(word, "--kv-cache-dtype");
}

Result<WeightFormat> weight_format(const Globals& globals) {
  if (globals.weights == "stored") {
    VOLTA_TRY(const DType dtype, compute_dtype(globals));
    return WeightFormat{.dtype = dtype};
  }
  for (const FormatInfo& format : kFormats) {
    // f16 is only a stored type: no option rounds to it.
    if (globals.weights != format.name || !format.from_f32 || format.dtype == DType::kF16) continue;
    return WeightFormat{.dtype = format.dtype, .quant = format.quant};
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--weights {}: use stored, f32, bf16, q8 or q4", globals.weights));
}

Result<WeightOptions> weight_options(const Globals& globals) {
  VOLTA_TRY(const WeightFormat format, weight_format(globals));
  return WeightOptions{.packed = true, .format = format, .widen = globals.weights == "f32"};
}

Result<Session> Session::create(const Globals& globals, const std::function<bool()>& stop) {
  DeviceOptions options;
  options.threads = globals.threads;
  options.interrupted = stop;
  VOLTA_TRY(const DeviceChoice choice, globals.device.empty()
                                           ? DeviceChoice::detect()
                                           : DeviceChoice::parse(globals.device, "--device"));
  options.kind = choice.kind;
  options.index = choice.index;
  Session session;
  VOLTA_TRY(const DeviceHandle handle, open_device(std::move(options)));
  session.device_ = handle.shared();
  session.globals_ = globals;
  if (!globals.profile.empty()) {
    // The profile is written last. Check now that it can be written, before an hour of work.
    VOLTA_TRY(check_result_file(globals, globals.profile, "--profile"));
    const bool has_folder = path_exists(parent_path(globals.profile));  // Else it can be made.
    if (auto place = has_folder ? try_file(globals.profile) : Status(); !place) {
      return std::unexpected(std::move(place).error().with_context("--profile"));
    }
    VOLTA_TRY(session.profiler_, ProfilingDevice::create(session.device_));
    session.device_ = session.profiler_;
  }
  return session;
}

Status Session::finish(const std::string& result) const {
  if (profiler_ == nullptr) return {};
  const std::string& path = globals_.profile;
  // Checked again, because the command has written its own result meanwhile.
  Status written = check_output_file(globals_, path, "--profile");
  if (written) written = make_folder_of(path, "--profile");
  if (written) {
    written = write_file_atomic(path, to_text(profiler_->profile(), profile_format_for(path)),
                                existing_file(globals_));
  }
  if (!written) {
    if (result.empty()) return written;
    return std::unexpected(std::move(written).error().with_context(
        fmt::format("'{}' is complete, but its profile could not be written", result)));
  }
  note(fmt::format("profile written to {}\n", path));
  return {};
}

bool interrupted() { return g_first_signal.load(std::memory_order_relaxed) != 0; }

void install_signal_handlers() {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  // SIGHUP: a terminal is closed. Under nohup it stays ignored.
  if (std::signal(SIGHUP, SIG_IGN) != SIG_IGN) std::signal(SIGHUP, on_signal);
  std::signal(SIGPIPE, SIG_IGN);  // A closed pipe: print() fails (see main.cc).
  std::signal(SIGXFSZ, SIG_IGN);  // A file at its size limit: write() fails.
}

namespace {

// Reads a stream to its end. poll() returns at a signal, where read() would go on
// waiting.
Result<std::string> read_stream(int fd, const std::string& name, std::int64_t max_bytes) {
  std::string text;
  std::array<char, 1 << 16> block{};
  while (true) {
    pollfd input{.fd = fd, .events = POLLIN, .revents = 0};
    // With a limit: a signal may come between the question and the wait.
    constexpr int kMilliseconds = 200;
    const int ready = ::poll(&input, 1, kMilliseconds);
    if (interrupted()) return fail(ErrorCode::kInterrupted, "interrupted");
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    const ssize_t n = ready < 0 ? -1 : ::read(fd, block.data(), block.size());
    if (n == 0) return text;
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) {
      return fail(ErrorCode::kIo, fmt::format("{} cannot be read: {}", name,
                                              std::generic_category().message(errno)));
    }
    if (std::ssize(text) + n > max_bytes) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: more than {}", name, format_bytes(max_bytes)));
    }
    text.append(block.data(), static_cast<std::size_t>(n));
  }
}

bool is_standard_input(const std::string& path) {
  return path == kStandardStream || path == "/dev/stdin";
}

}  // namespace

Result<std::string> read_standard_input(std::int64_t max_bytes) {
  return read_stream(STDIN_FILENO, "standard input", max_bytes);
}

bool is_stream(const std::string& path) {
  struct stat info = {};
  return is_standard_input(path) || (::stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode));
}

Result<std::string> read_input(const std::string& path, std::int64_t max_bytes) {
  if (is_standard_input(path)) return read_standard_input(max_bytes);
  if (!is_stream(path)) return read_text_file(path, max_bytes, interrupted);
  // Opening a named pipe for reading would wait for its writer. poll() waits instead.
  VOLTA_TRY(const Descriptor pipe, open_file(path, O_RDONLY | O_NONBLOCK, "open"));
  return read_stream(pipe.get(), fmt::format("'{}'", path), max_bytes);
}

std::string input_name(const std::string& path) {
  return is_standard_input(path) ? "standard input" : path;
}

Result<std::string> read_prompt(const std::string& path, std::int64_t max_bytes) {
  VOLTA_TRY(const std::string input, read_input(path, max_bytes));
  std::string text(skip_byte_order_mark(input));
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  if (!text.empty()) return text;
  return fail(ErrorCode::kInvalidFile, fmt::format("{}: there is no text in it", input_name(path)));
}

Status print(std::string_view text) {
  static const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  std::string escaped;
  if (terminal && !g_raw_output) {
    escaped = escape_controls(text);
    text = escaped;
  }
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) {
    return {};
  }
  const int error = errno;
  g_output_pipe_closed = error == EPIPE;
  return fail(ErrorCode::kIo, fmt::format("cannot write to standard output: {}",
                                          std::generic_category().message(error)));
}

void write_raw_output() { g_raw_output = true; }
bool output_pipe_closed() { return g_output_pipe_closed; }

void note_slow_products(const Session& session, DType dtype, bool decodes) {
  const std::string drawback =
      session.device()->compute_drawback(dtype, Rounding::kProducts, decodes);
  if (drawback.empty()) return;
  note(
      fmt::format("volta: --dtype {} can be slower than f32 here: {}; --weights bf16 halves the "
                  "weights and computes in f32\n",
                  dtype_name(dtype), drawback));
}

std::string whole_path(const std::string& path) {
  namespace fs = std::filesystem;
  if (path.empty()) return path;
  // Only the folder is resolved. A link at the end keeps its name, because it may get another
  // target.
  const fs::path given = path;
  const bool has_name = given.has_filename() && given.filename() != "." && given.filename() != "..";
  const fs::path folder = has_name ? given.parent_path() : given;
  std::error_code error;
  const fs::path real = fs::weakly_canonical(folder.empty() ? "." : folder, error);
  if (error) return fs::absolute(given, error).string();
  return (has_name ? real / given.filename() : real).string();
}

Status refuse_gguf(const std::string& path) {
  if (!is_gguf_path(path)) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: give a model folder; `volta convert {} DIR` makes one", path, path));
}

void add_adapter_options(Command& command, AdapterOptions& options, bool required) {
  Option* adapter =
      command
          .add_option("--adapter", options.folder, "adapter folder, or the folder of a LoRA run")
          ->only_once();
  if (required) adapter->required();
  command.add_flag("--any-base", options.any_base,
                   "take the adapter on another model than the one it was trained on");
}

Result<Transformer> load_adapted_model(const ModelSource& source, const AdapterOptions& adapter,
                                       const std::shared_ptr<Device>& device,
                                       const WeightOptions& options) {
  if (adapter.folder.empty()) {
    if (!adapter.any_base) return source.load(device, options);
    return fail(ErrorCode::kInvalidArgument, "--any-base goes with --adapter");
  }
  VOLTA_TRY(Transformer model, source.load(device));
  VOLTA_TRY(const std::string folder, find_adapter_folder(adapter.folder, interrupted));
  if (!adapter.any_base) VOLTA_TRY(check_adapter_base(folder, model, whole_path(source.path())));
  VOLTA_TRY(const Adapter loaded, load_adapter(folder, model.config()));
  VOLTA_TRY(apply_adapter(model, loaded));
  if (options.packed) VOLTA_TRY(model.prepack(options.format));
  return model;
}

}  // namespace volta::cli
