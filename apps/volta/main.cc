// volta: the command line. Parses, runs one subcommand, and turns errors into messages and exit
// codes: 0 done, 1 failure, 2 usage, 3 invalid model or file, 4 out of memory, 5 device,
// 6 verification mismatch, 130 interrupted.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <string_view>

#include "base/text.h"
#include "base/version.h"
#include "command.h"

namespace volta::cli {
namespace {

constexpr int kUsage = 2;

// The permanent aliases: `volta --bench-infer ...`, `volta --tune-matmul ...`, `volta --demo ...`.
std::vector<std::string> expand_aliases(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
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

void add_globals(CLI::App& app, Globals& globals) {
  app.add_option("--device", globals.device, "cpu, cuda or auto (default: VOLTA_DEVICE, or auto)")
      ->group("Global");
  app.add_option("--threads,--bench-threads", globals.threads,
                 "CPU threads (default: VOLTA_NUM_THREADS, or the CPUs this process may use)")
      ->check(CLI::Range(1, 1024))
      ->group("Global");
  app.add_option("--dtype", globals.dtype, "compute type: f32 or bf16; weights stay as stored")
      ->group("Global");
  app.add_option(
         "--weights", globals.weights,
         "what running models keep weights as, where that is narrower: stored, f32, bf16, q8, q4")
      ->group("Global");
  app.add_option("--seed", globals.seed, "seed of everything random")->group("Global");
  app.add_option("--output", globals.output, "text, json or csv (graph: dot; generate: jsonl)")
      ->group("Global");
  app.add_option("--profile", globals.profile,
                 "write a profile of every op: .csv, .json, .trace.json (Perfetto), else a table")
      ->check(refuse_empty)
      ->group("Global");
}

// The parser would clamp a number that is too large and wrap a negative one around: every option
// that takes whole numbers is checked as text first.
std::string check_whole(const std::string& text, bool negative) {
  const auto refusal = [&](const auto& parsed) {
    return parsed ? std::string() : std::string(parsed.error().message());
  };
  return negative ? refusal(parse_int<std::int64_t>(text, "value"))
                  : refusal(parse_int<std::uint64_t>(text, "value"));
}

// An empty value would count as none: of a shell variable that is not set.
std::string refuse_nothing(const std::string& text) { return text.empty() ? "give a value" : ""; }

// What all commands get alike, when they know their options.
void finish_commands(CLI::App& app) {
  constexpr std::array<std::string_view, 5> kMayBeEmpty = {"--system", "--prompt", "--stop",
                                                           "--decode", "text"};
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() > 0 &&
        std::ranges::find(kMayBeEmpty, option->get_name()) == kMayBeEmpty.end()) {
      option->check(refuse_nothing);
    }
    const std::string type = option->get_type_name();
    const bool negative = type.starts_with("INT");
    if (!negative && !type.starts_with("UINT")) continue;
    option->check([=](const std::string& text) { return check_whole(text, negative); });
  }
  for (CLI::App* command : app.get_subcommands({})) {
    finish_commands(*command);
    if (!command->get_subcommands({}).empty()) continue;
    const std::string footer = command->get_footer();
    command->footer(footer + (footer.empty() ? "" : "\n") +
                    "Also: --device, --threads, --dtype, --weights, --seed, --output, --profile "
                    "(see volta --help)");
  }
}

// What the parser refuses, in one line that names it.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> extras = app.remaining(true);
  const bool command_missing = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if (!extras.empty() && (command_missing || dynamic_cast<const CLI::ExtrasError*>(&error))) {
    const auto flag = std::find_if(extras.begin(), extras.end(),
                                   [](const std::string& word) { return word.starts_with("-"); });
    return fmt::format("{} is not known here", flag == extras.end() ? extras.front() : *flag);
  }
  return error.what();
}

int run(int argc, char** argv) {
  CLI::App app("Volta trains and runs transformers.", "volta");
  app.require_subcommand(1);
  app.fallthrough();
  app.set_version_flag("--version", fmt::format("volta {}", version_with_hash()));
  app.option_defaults()->take_last();  // A flag given twice means its last value.
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
  finish_commands(app);
  std::vector<std::string> words = expand_aliases(argc, argv);
  std::reverse(words.begin(), words.end());  // As CLI11 wants them.
  try {
    app.parse(words);
  } catch (const CLI::Success& wanted) {  // --help, --version.
    app.exit(wanted);
    return std::cout.flush() ? 0 : exit_code(ErrorCode::kIo);
  } catch (const CLI::ParseError& error) {
    note(fmt::format("volta: {}\nRun with --help for what there is.\n", usage_message(app, error)));
    return kUsage;
  }
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() > 0) globals.given.push_back("--" + option->get_lnames().front());
  }
  const Status done = action ? action() : Status();
  if (done) return 0;
  note(fmt::format("volta: {}\n", done.error().message()));
  return exit_code(done.error().code());
}

}  // namespace
}  // namespace volta::cli

namespace {

// A stream that the caller closed stays unusable, but its number is taken: the next file that is
// opened would get it, and what is printed would go into that file.
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
  return volta::cli::run(argc, argv);
}
