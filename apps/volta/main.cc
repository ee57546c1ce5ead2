// volta: the command line. Parses it, runs one subcommand, and turns errors into messages and exit
// codes: 0 done, 1 failure, 2 usage, 3 invalid model or file, 4 out of memory, 5 device, 6
// verification mismatch, 130 interrupted.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/memory.h"
#include "base/version.h"
#include "command.h"
#include "options.h"

namespace volta::cli {
namespace {

constexpr int kUsage = 2;

// What was written behind the program's name.
std::vector<std::string> words_of(int argc, char** argv) {
  if (argc < 1) return {};
#if defined(__clang__)
#pragma clang unsafe_buffer_usage begin
#endif
  // SAFETY: the system gives main() an array of `argc` pointers to texts that end with a zero.
  return {argv + 1, argv + argc};
#if defined(__clang__)
#pragma clang unsafe_buffer_usage end
#endif
}

// The permanent aliases: `volta --bench-infer ...`, `volta --tune-matmul ...`, `volta --demo ...`,
// and `volta help COMMAND`, which is `volta COMMAND --help`.
std::vector<std::string> expand_aliases(int argc, char** argv) {
  std::vector<std::string> words = words_of(argc, argv);
  if (!words.empty() && words.front() == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
    return words;
  }
  struct Alias {
    std::string_view flag;
    std::vector<std::string> command;
  };
  const std::array aliases = {Alias{"--bench-infer", {"bench", "infer"}},
                              Alias{"--tune-matmul", {"tune", "matmul"}},
                              Alias{"--demo", {"demo"}}};
  for (const Alias& alias : aliases) {
    for (auto word = words.begin(); word != words.end(); ++word) {
      if (*word != alias.flag) continue;
      words.erase(word);
      words.insert(words.begin(), alias.command.begin(), alias.command.end());
      return words;
    }
  }
  return words;
}

constexpr const char* kGlobalsFooter =
    "Also: --device, --threads, --dtype, --weights, --seed, --output, --profile, "
    "--force, --raw, --quiet, --log-file (see volta --help)";

void add_globals(Command& app, Globals& globals) {
  app.add_option("--device", globals.device,
                 "cpu, cuda, cuda:N or auto (default: VOLTA_DEVICE, or auto)")
      ->suggest({"cpu", "cuda", "auto"})
      ->group("Global");
  app.add_option("-t,--threads,--bench-threads", globals.threads,
                 "CPU threads (default: VOLTA_NUM_THREADS, or the CPUs this process may use)")
      ->check(range(1, 1024))
      ->group("Global");
  app.add_option("--dtype", globals.dtype, "compute type: f32 or bf16; weights stay as stored")
      ->suggest({"f32", "bf16"})
      ->group("Global");
  app.add_option(
         "--weights", globals.weights,
         "what running models keep weights as, where that is narrower: stored, f32, bf16, q8, q4")
      ->suggest({"stored", "f32", "bf16", "q8", "q4"})
      ->group("Global");
  app.add_option("--seed", globals.seed, "seed of everything random (default 1)")->group("Global");
  app.add_option("--output", globals.output, "text, json or csv (graph: dot; generate: jsonl)")
      ->suggest({"text", "json", "jsonl", "csv", "dot"})
      ->group("Global");
  app.add_option("--profile", globals.profile,
                 "write a profile of every op: .csv, .json, .trace.json (Perfetto), else a table")
      ->check(refuse_empty)
      ->not_a_stream()
      ->group("Global");
  app.add_flag("--force", globals.force, "replace a --profile file that is there")->group("Global");
  app.add_flag("-q,--quiet", globals.quiet, "no progress and messages, only warnings and errors")
      ->group("Global");
  app.add_option("--log-file", globals.log_file,
                 "append messages, and progress every ten seconds, to this file, with the time")
      ->check(refuse_empty)
      ->not_a_stream()
      ->group("Global");
  app.add_flag("--raw", globals.raw, "write control characters to a terminal as they are")
      ->group("Global");
}

// Prints the message of an error and returns the exit code. When the reader of a pipe has gone
// (`volta ... | head -1`), the process ends quietly by SIGPIPE, as other programs do.
int finish(const Status& done) {
  if (done) return 0;
  if (output_pipe_closed()) {
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  const std::string message = fmt::format("volta: {}\n", one_line(done.error().message()));
  // Whoever interrupts a quiet command knows it, and the exit code tells the others.
  const bool silent = is_quiet() && done.error().code() == ErrorCode::kInterrupted;
  silent ? log_to_file(message) : note(message);
  return exit_code(done.error().code());
}

int run(int argc, char** argv) {
  Parser parser("Volta trains and runs transformers.", "volta",
                fmt::format("volta {}", version_with_hash()));
  Command& app = parser.root();
  Globals globals;
  Action action;
  add_globals(app, globals);
  add_train(app, globals, action);
  add_generate(app, globals, action);
  add_chat(app, globals, action);
  add_eval(app, globals, action);
  add_logits(app, globals, action);
  add_verify(app, globals, action);
  add_quantize(app, globals, action);
  add_convert(app, globals, action);
  add_merge(app, globals, action);
  add_bench(app, globals, action);
  add_tune(app, globals, action);
  add_inspect(app, globals, action);
  add_graph(app, globals, action);
  add_devices(app, globals, action);
  add_version(app, globals, action);
  add_demo(app, globals, action);
  add_tokenize(app, globals, action);
  add_tokenizer(app, globals, action);
  const auto describe = [&parser] { return parser.describe(); };
  add_completion(app, globals, action, describe);
  add_man(app, globals, action, describe);
  const auto answer = parser.parse(expand_aliases(argc, argv), kGlobalsFooter);
  if (!answer) {
    note(fmt::format("volta: {}\n{} --help shows what there is.\n",
                     one_line(answer.error().message()), parser.named_command()));
    return kUsage;
  }
  if (!answer->empty()) return finish(print(*answer));
  globals.given = parser.given();
  globals.values = parser.values();
  if (globals.has("--force") && globals.profile.empty()) {
    note(
        "volta: --force has no effect here: drop it. It goes with --profile and, behind the "
        "command's name, with train, quantize, merge, convert, logits, tokenizer train, tune "
        "export and bench history\n");
    return kUsage;
  }
  if (globals.raw) write_raw_output();
  if (globals.quiet) be_quiet();
  if (!globals.log_file.empty()) {
    const Status opened = open_log_file(globals.log_file);
    if (!opened) return finish(opened);
  }
  return finish(action ? action() : Status());
}

}  // namespace
}  // namespace volta::cli

namespace {

// Occupies the descriptors of standard streams that the caller has closed. Otherwise the next file
// to be opened would get such a number, and output would be written into that file.
void occupy_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) != -1) continue;
    if (::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY) != stream) return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  occupy_closed_streams();
  volta::cli::install_signal_handlers();
  volta::install_mapping_guard();
  return volta::cli::run(argc, argv);
}
