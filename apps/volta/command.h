// What every subcommand shares: the global options, the way a command is registered, the device it
// runs on, and how an Error becomes an exit code. One file a subcommand includes this and no other.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "device/profiling_device.h"
#include "nn/transformer.h"
#include "nn/transformer_config.h"
#include "options.h"
#include "tensor/dtype.h"
#include "tensor/encoding.h"
#include "train/run.h"

namespace volta::cli {

/// How results are written to standard output.
enum class Output : std::uint8_t { kText, kJson, kJsonLines, kCsv, kDot };

/// Options that every subcommand takes.
struct Globals {
  std::string device;  ///< "cpu", "cuda", "cuda:1", "auto"; empty: VOLTA_DEVICE.
  int threads = 0;     ///< 0: VOLTA_NUM_THREADS, or the CPUs this process may use.
  std::string dtype = "f32";
  std::string weights = "stored";
  std::uint64_t seed = 1;
  std::string output = "text";
  std::string profile;             ///< A file for the profile; empty: none.
  bool force = false;              ///< Whether files that are there may be replaced.
  bool raw = false;                ///< Control characters go to a terminal as they are.
  std::vector<std::string> given;  ///< The names of those that the command line has.

  bool has(std::string_view name) const { return std::ranges::find(given, name) != given.end(); }
};

/// What a parsed command line will do.
using Action = std::function<Status()>;

// Each registers its subcommand, and sets `action` when the command line names it.
void add_train(Command& app, Globals& globals, Action& action);
void add_generate(Command& app, Globals& globals, Action& action);
void add_chat(Command& app, Globals& globals, Action& action);
void add_convert(Command& app, Globals& globals, Action& action);
void add_eval(Command& app, Globals& globals, Action& action);
void add_logits(Command& app, Globals& globals, Action& action);
void add_verify(Command& app, Globals& globals, Action& action);
void add_quantize(Command& app, Globals& globals, Action& action);
void add_merge(Command& app, Globals& globals, Action& action);
void add_bench(Command& app, Globals& globals, Action& action);
void add_tune(Command& app, Globals& globals, Action& action);
void add_inspect(Command& app, Globals& globals, Action& action);
void add_graph(Command& app, Globals& globals, Action& action);
void add_devices(Command& app, Globals& globals, Action& action);
void add_version(Command& app, Globals& globals, Action& action);
void add_demo(Command& app, Globals& globals, Action& action);
void add_tokenize(Command& app, Globals& globals, Action& action);
void add_tokenizer(Command& app, Globals& globals, Action& action);

/// The documented exit code of an error.
int exit_code(ErrorCode code);

/// A check of options that name a place to write: the empty name is refused.
inline std::string refuse_empty(const std::string& path) {
  return path.empty() ? "give the name of a place to write" : "";
}
/// --output, for a command that can write `allowed`.
Result<Output> parse_output(const Globals& globals, const std::vector<Output>& allowed);
/// The options that say nothing to a command that runs no ops and keeps no weights.
inline constexpr std::array<std::string_view, 3> kNothingRuns = {"--profile", "--dtype",
                                                                 "--weights"};
/// kInvalidArgument when one of these options is given, to a command that has no use for it.
Status refuse_unused(const Globals& globals, std::span<const std::string_view> names);
Status refuse_unused(const Globals& globals, std::string_view name);
/// --dtype: f32 or bf16.
Result<DType> compute_dtype(const Globals& globals);
/// f32, bf16 or f16; `flag` names it in messages.
Result<DType> float_type(std::string_view word, std::string_view flag);
/// --kv-cache-dtype, for a command that generates with a KV cache.
Option* add_kv_cache_dtype(Command& command, std::string& word);
Result<DType> kv_cache_dtype(const std::string& word);
/// --weights: what a model that only runs keeps them as. "stored" rounds to the compute type.
Result<WeightFormat> weight_format(const Globals& globals);
/// How --weights has a model loaded that only runs. f32 widens what is stored as integers, too.
Result<WeightOptions> weight_options(const Globals& globals);

/// --context, for a command that generates: how many tokens prompt and answer have together.
/// `otherwise` tells in --help what holds without it.
Option* add_context_option(Command& command, std::optional<std::int64_t>& tokens,
                           std::string_view otherwise);
/// What --context asks for, or `otherwise`. kInvalidArgument when it is more than the model has.
Result<std::int64_t> context_length(std::optional<std::int64_t> tokens,
                                    const TransformerConfig& model, std::int64_t otherwise);

/// "5,6,7"; `flag` names it in messages.
Result<std::vector<std::int32_t>> parse_ids(std::string_view text, std::string_view flag);

/// True from the first SIGINT or SIGTERM on; a second one ends the process at once.
bool interrupted();
void install_signal_handlers();

/// The device of one command, and the profile that is written when it ends.
class Session {
 public:
  /// `stop` is asked now and then whether to give up the running computation.
  static Result<Session> create(const Globals& globals,
                                const std::function<bool()>& stop = interrupted);
  const std::shared_ptr<Device>& device() const { return device_; }
  /// Writes the --profile file, if one was asked for. `result` is the path of what the command has
  /// made, which the message of a failure says is complete; empty when it made none.
  Status finish(const std::string& result = "") const;

 private:
  std::shared_ptr<Device> device_;
  std::shared_ptr<ProfilingDevice> profiler_;
  std::string profile_path_;
};

/// Says on standard error, in one line, when products in `dtype` can be slower than in f32 on the
/// session's device, and why.
void note_slow_products(const Session& session, DType dtype);

/// All of standard input. kInvalidArgument where it has more than `max_bytes`; kInterrupted.
Result<std::string> read_standard_input(std::int64_t max_bytes);

/// Writes a result to standard output. On a terminal, control characters are escaped (see
/// escape_controls(); JSON stays the same JSON), unless write_raw_output() was called. When the
/// reader of a pipe has gone, the error is remembered by output_pipe_closed().
Status print(std::string_view text);
void write_raw_output();
bool output_pipe_closed();
/// Writes a message to standard error, control characters escaped.
void note(std::string_view text);
/// The same for Volta's own control sequences: nothing of a file, a model or the user.
void note_raw(std::string_view text);

/// Runs a training run with its progress on standard error; SIGINT, SIGTERM and SIGHUP end it with
/// a checkpoint.
Result<RunResult> train_with_progress(const RunOptions& options, std::shared_ptr<Device> device);

/// Whether a result may be written to `path`: kInvalidArgument, naming --force, when a file is
/// there and `force` is not set; kIo for what is no regular file. `flag` names the option in
/// messages; empty where the path is an argument.
Status check_output_file(const std::string& path, bool force, std::string_view flag);
/// The same for a result that is no part of a model (logits, a profile, a tuning table): with
/// `force`, too, kInvalidArgument where a file of a model, an adapter or a run would be replaced.
Status check_result_file(const std::string& path, bool force, std::string_view flag);

/// Whether a model made from the one in `source` (a folder, or a .gguf file) may be put into the
/// folder `path`, found out before the work: the errors of check_source_stays and check_new_folder.
/// With `force`, kInvalidArgument also where something else than a model would be replaced (a run,
/// a checkpoint, an adapter), and for a folder as `source` the errors of check_gives_way.
Status check_output_folder(const std::string& path, bool force, const std::string& source);

/// The path from the root, so that it means the same in another working folder: its folder as the
/// system resolves it (through links, as `cat` would), and the name as given. An empty path stays
/// empty.
std::string whole_path(const std::string& path);

/// The folder that holds config.json: `path` itself, the newest valid checkpoint of a run, or the
/// model of that name in the Hugging Face cache (formats/hub_cache.h). A .gguf file is itself.
Result<std::string> find_model(const std::string& path);

/// kInvalidArgument for a .gguf file, with what to do: for commands that need a model folder.
Status refuse_gguf(const std::string& path);

/// --adapter and --any-base, of the commands that run or merge an adapter.
struct AdapterOptions {
  std::string folder;     ///< An adapter's folder, or that of a LoRA run; empty: none.
  bool any_base = false;  ///< Also on another model than the adapter's own.
};
void add_adapter_options(Command& command, AdapterOptions& options, bool required = false);

/// The model in `directory` (of find_model); with an adapter, loaded as f32 and merged with it.
/// kMismatch where the adapter was trained on other weights (where only the name of its base is
/// known and differs, a warning), unless `any_base`.
Result<Transformer> load_adapted_model(const std::string& directory, const AdapterOptions& adapter,
                                       const std::shared_ptr<Device>& device,
                                       const WeightOptions& options = {});

}  // namespace volta::cli
