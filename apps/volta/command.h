// What every subcommand shares: the global options, the registration of a command, the device that
// it runs on, and the exit code of an Error. Each subcommand has a file of its own, which includes
// this header.
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

#include "base/file.h"
#include "base/result.h"
#include "device/device.h"
#include "device/profiling_device.h"
#include "formats/model_source.h"
#include "nn/transformer.h"
#include "nn/transformer_config.h"
#include "options.h"
#include "tensor/dtype.h"
#include "tensor/encoding.h"
#include "train/run.h"

namespace volta::cli {

class Session;

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
  bool force = false;              ///< Existing files may be replaced.
  bool quiet = false;              ///< Only warnings and errors on standard error.
  std::string log_file;            ///< Messages are appended to this file, too; empty: to none.
  bool raw = false;                ///< Control characters go to a terminal unescaped.
  std::vector<std::string> given;  ///< Names of those on the command line.
  /// The values of all options, in which output files are searched for what the command reads. A
  /// command that reads other files (those of a run that it resumes) adds them.
  std::vector<GivenValue> values;

  bool has(std::string_view name) const { return std::ranges::find(given, name) != given.end(); }
};

/// The work of the command that was parsed.
using Action = std::function<Status()>;

// Each function registers its subcommand, and sets `action` when the command line names it.
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
/// `describe` gives all commands, those that are added later too.
void add_completion(Command& app, Globals& globals, Action& action,
                    const std::function<CommandInfo()>& describe);
void add_man(Command& app, Globals& globals, Action& action,
             const std::function<CommandInfo()>& describe);

/// The documented exit code of an error.
int exit_code(ErrorCode code);

/// What a model can be, in --help: for commands that take every form, and for those that need a
/// folder (see refuse_gguf()).
inline constexpr std::string_view kModelHelp =
    "model folder, run, .gguf file or a name in the Hugging Face cache";
inline constexpr std::string_view kFolderHelp =
    "model folder, run or a name in the Hugging Face cache";

/// A check for options that name an output file: refuses the empty name.
inline std::string refuse_empty(const std::string& path) {
  return path.empty() ? "give the name of a place to write" : "";
}
/// --output, for a command that can write `allowed`.
Result<Output> parse_output(const Globals& globals, const std::vector<Output>& allowed);
/// The options that have no effect on a command that runs no ops and keeps no weights.
inline constexpr std::array<std::string_view, 3> kNothingRuns = {"--profile", "--dtype",
                                                                 "--weights"};
/// kInvalidArgument when one of these options is given. For commands that have no use for them.
Status refuse_unused(const Globals& globals, std::span<const std::string_view> names);
Status refuse_unused(const Globals& globals, std::string_view name);
/// --dtype: f32 or bf16.
Result<DType> compute_dtype(const Globals& globals);
/// Parses f32, bf16 or f16; `flag` is the name of the option, for messages.
Result<DType> float_type(std::string_view word, std::string_view flag);
/// --kv-cache-dtype, for a command that generates with a KV cache.
Option* add_kv_cache_dtype(Command& command, std::string& word);
/// The type that `word` names; without a word, what the device prefers with a compute type.
Result<DType> kv_cache_dtype(const std::string& word, const Session& session, DType compute);
/// --weights: the format in which a model for inference keeps its weights. "stored" rounds to the
/// compute type.
Result<WeightFormat> weight_format(const Globals& globals);
/// How a model for inference is loaded with --weights. f32 also widens weights that are stored as
/// integers.
Result<WeightOptions> weight_options(const Globals& globals);

/// --context, for a command that generates: the largest number of tokens in prompt and answer
/// together. `otherwise` describes the default in --help.
Option* add_context_option(Command& command, std::optional<std::int64_t>& tokens,
                           std::string_view otherwise);
/// The value of --context; by default `otherwise`, or the model's context if that is smaller.
/// kInvalidArgument when --context exceeds the model's context.
Result<std::int64_t> context_length(std::optional<std::int64_t> tokens,
                                    const TransformerConfig& model, std::int64_t otherwise);

/// Parses "5,6,7"; `flag` is the name of the option, for messages.
Result<std::vector<std::int32_t>> parse_ids(std::string_view text, std::string_view flag);

/// True after the first SIGINT, SIGTERM or SIGHUP. A second one ends the process at once, unless it
/// comes within a second of the first.
bool interrupted();
void install_signal_handlers();

/// The device of one command, and the profile that is written when it ends.
class Session {
 public:
  /// `stop` is called now and then; true ends the running computation.
  static Result<Session> create(const Globals& globals,
                                const std::function<bool()>& stop = interrupted);
  const std::shared_ptr<Device>& device() const { return device_; }
  /// Writes the --profile file, if one was requested. `result` is the path of what the command has
  /// written, or empty. If the profile cannot be written, the message says that this result is
  /// complete.
  Status finish(const std::string& result = "") const;

 private:
  std::shared_ptr<Device> device_;
  std::shared_ptr<ProfilingDevice> profiler_;
  Globals globals_;
};

/// Writes one line to standard error when matrix products in `dtype` can be slower than in f32 on
/// the session's device. The line gives the reason. `decodes`: whether the command generates
/// tokens.
void note_slow_products(const Session& session, DType dtype, bool decodes = true);

/// Reads all of standard input. kInvalidArgument when it has more than `max_bytes`; kInterrupted.
Result<std::string> read_standard_input(std::int64_t max_bytes);
/// In place of a file's name: standard input, or standard output.
inline constexpr std::string_view kStandardStream = "-";
/// Whether an input can be read only once, from its beginning to its end: "-", a named pipe, or
/// what a shell makes of <(COMMAND).
bool is_stream(const std::string& path);
/// The text of a file, or of such a stream, which is read to its end. Errors as for files and for
/// read_standard_input().
Result<std::string> read_input(const std::string& path, std::int64_t max_bytes);
/// The name of such an input in messages.
std::string input_name(const std::string& path);
/// The text of such an input without the line break that editors and `echo` put at its end.
/// kInvalidFile if nothing is left.
Result<std::string> read_prompt(const std::string& path, std::int64_t max_bytes);

/// Writes a result to standard output. On a terminal, control characters are escaped (see
/// escape_controls(); escaped JSON has the same meaning), unless write_raw_output() was called.
/// output_pipe_closed() returns true after a write has failed because the reader of the pipe has
/// gone.
Status print(std::string_view text);
void write_raw_output();
bool output_pipe_closed();
/// Writes a message to standard error with control characters escaped, and to the --log-file. After
/// be_quiet(), only messages that begin with "volta: " (warnings and errors) go to standard error.
void note(std::string_view text);
void be_quiet();
bool is_quiet();
/// Appends all messages from now on to a file, each line with the time. kIo when it cannot be
/// opened.
Status open_log_file(const std::string& path);
/// Adds lines to the --log-file alone, if there is one. The first line that cannot be written gets
/// a warning on standard error.
void log_to_file(std::string_view text);
/// The same without escaping, for Volta's own control sequences. Never for text from a file, a
/// model or the user.
void note_raw(std::string_view text);

/// Runs a training run with its progress on standard error; SIGINT, SIGTERM and SIGHUP end it with
/// a checkpoint.
Result<RunResult> train_with_progress(const RunOptions& options, std::shared_ptr<Device> device);

/// Makes the folders above a file that is about to be written, as `mkdir -p` does. kIo when that
/// fails. `flag` is the name of the option; empty when the path is an argument.
Status make_folder_of(const std::string& path, std::string_view flag);
/// Checks that a result may be written to `path`, and that the folders above it can be made.
/// kInvalidArgument when this command reads the file that exists there (even with --force), or,
/// naming --force, when there is a file and --force was not given; kIo when something else than a
/// regular file exists there, or when its folder cannot be made. `flag` as for make_folder_of().
Status check_output_file(const Globals& globals, const std::string& path, std::string_view flag);
/// The same for a result that is not part of a model (logits, a profile, a tuning table). Even with
/// --force, kInvalidArgument when it would replace a file of a model, an adapter or a run.
Status check_result_file(const Globals& globals, const std::string& path, std::string_view flag);
/// kInvalidArgument, even with --force, when the folder that is to get a new tokenizer.json holds a
/// model, an adapter or a run, which would read it as its own.
Status check_tokenizer_folder(const std::string& folder, std::string_view flag);

/// What the last step of writing a result does with a file that has the name.
inline Existing existing_file(const Globals& globals) {
  return globals.force ? Existing::kReplace : Existing::kKeep;
}

/// Checks, before any work, that a model made from the one in `source` (a folder or a .gguf file)
/// may be written to the folder `path`: the errors of check_source_stays() and check_new_folder().
/// kInvalidArgument also when another file that this command reads belongs to the model in `path`,
/// and with --force when a run, a checkpoint or an adapter would be replaced; the errors of
/// check_gives_way() when `source` is a folder.
Status check_output_folder(const Globals& globals, const std::string& path,
                           const std::string& source);

/// The absolute path, so that it means the same in another working directory. Links in its folder
/// are resolved by the system (as for `cat`); the last name stays as given. An empty path stays
/// empty.
std::string whole_path(const std::string& path);

/// kInvalidArgument, with the remedy, for a .gguf file. For commands that need a model folder.
Status refuse_gguf(const std::string& path);

/// --adapter and --any-base, of the commands that run or merge an adapter.
struct AdapterOptions {
  std::string folder;     ///< An adapter's folder, or that of a LoRA run; empty: none.
  bool any_base = false;  ///< Accept another model than the adapter's own.
};
void add_adapter_options(Command& command, AdapterOptions& options, bool required = false);

/// Loads a model. With an adapter, the model is loaded as f32 and merged with it. kMismatch when
/// the adapter was trained on other weights. If only the name of its base is known and differs, a
/// warning is logged. `any_base` skips both checks.
Result<Transformer> load_adapted_model(const ModelSource& source, const AdapterOptions& adapter,
                                       const std::shared_ptr<Device>& device,
                                       const WeightOptions& options = {});

}  // namespace volta::cli
