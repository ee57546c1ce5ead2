// volta demo: trains a small transformer on real text (about a minute on two fast cores) and shows
// what it can do.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "base/arithmetic.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/text.h"
#include "bench_infer.h"
#include "command.h"
#include "formats/model_source.h"
#include "nn/generator.h"
#include "text/tokenizer.h"
#include "train/presets.h"

namespace volta::cli {
namespace {

constexpr std::string_view kLicenses = "/usr/share/common-licenses";

struct DemoOptions {
  std::string text;
  std::string out;
  std::int64_t steps = 0;
};

// The license texts that every Debian system has, joined together.
Result<std::string> license_texts() {
  auto names = list_directory(std::string(kLicenses));
  std::string all;
  if (names) {
    for (const std::string& name : *names) {
      const std::string path = join_path(kLicenses, name);
      // Links are other names for the same texts ("GPL" for "GPL-3").
      std::string target(1, '\0');
      if (::readlink(path.c_str(), target.data(), 1) >= 0) continue;
      if (const auto text = read_text_file(path, std::int64_t{1} << 24)) all += *text;
    }
  }
  if (all.empty()) {
    return fail(
        ErrorCode::kNotFound,
        fmt::format("no license texts in {}; give a text of your own: --text FILE", kLicenses));
  }
  return all;
}

// The folder of this run: --out, or a new temporary folder.
Result<std::string> make_folder(const DemoOptions& options) {
  if (!options.out.empty()) return options.out;
  const std::string_view base = environment("TMPDIR");
  std::string pattern = join_path(base.empty() ? "/tmp" : base, "volta-demo-XXXXXX");
  if (::mkdtemp(pattern.data()) == nullptr) {
    return fail(ErrorCode::kIo, fmt::format("cannot make a folder like {}", pattern));
  }
  return pattern;
}

// With --output json, only the measurements go to standard output; other text goes to standard
// error.
Status say(const Globals& globals, std::string_view text) {
  if (globals.output == "text") return print(text);
  note(text);
  return {};
}

Status generate_sample(const std::string& directory, const Globals& globals,
                       const std::shared_ptr<Device>& device) {
  VOLTA_TRY(const DType dtype, compute_dtype(globals));
  VOLTA_TRY(const WeightOptions wanted, weight_options(globals));
  VOLTA_TRY(const ModelSource source, ModelSource::open(directory));
  VOLTA_TRY(Transformer model, source.load(device, wanted));
  VOLTA_TRY(const auto tokenizer, source.tokenizer(interrupted));
  GenerationRequest request{.prompt = {}, .max_new_tokens = 400, .sampling = {}, .stop_tokens = {}};
  auto prompt = tokenizer->encode("\nThe ");
  if (!prompt) prompt = std::vector<std::int32_t>{0};
  request.prompt = std::move(*prompt);
  request.sampling = {.temperature = 0.7f, .seed = globals.seed};
  const std::int64_t longest = std::ssize(request.prompt) + request.max_new_tokens;
  VOLTA_TRY(Generator generator,
            Generator::create(model, {.capacity = capacity_for(model.config(), longest),
                                      .compute_dtype = dtype}));
  StreamDecoder decoder(tokenizer);
  Status written = say(globals, tokenizer->decode(request.prompt));
  VOLTA_TRY(generator.generate(std::span(&request, 1), [&](const TokenEvent& event) {
    written = say(globals, decoder.push(event.token));
    return written && !interrupted();
  }));
  VOLTA_TRY(std::move(written));
  return say(globals, decoder.finish() + "\n");
}

Status demo(const Globals& globals, const DemoOptions& options) {
  VOLTA_TRY(RunOptions run, preset("demo"));
  VOLTA_TRY(parse_output(globals, {Output::kText, Output::kJson, Output::kCsv}));
  VOLTA_TRY(run.trainer.compute_dtype, compute_dtype(globals));
  VOLTA_TRY(const std::string folder, make_folder(options));
  run.out = join_path(folder, "run");
  if (path_exists(join_path(run.out, kRunFile))) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--out {}: a demo was made there already; give another folder", folder));
  }
  if (!options.text.empty()) run.data = {options.text};
  if (run.data.empty()) {
    VOLTA_TRY(const std::string text, license_texts());
    VOLTA_TRY(create_directories(folder));
    run.data = {join_path(folder, "licenses.txt")};
    VOLTA_TRY(write_file_atomic(run.data.front(), text));
  }
  run.seed = globals.seed;
  if (options.steps > 0) run.trainer.schedule.steps = options.steps;
  VOLTA_TRY(const Session session, Session::create(globals));
  VOLTA_TRY(say(globals, fmt::format("Training on {}\n", options.text.empty()
                                                             ? "the license texts of this machine"
                                                             : options.text)));
  VOLTA_TRY(const RunResult result, train_with_progress(run, session.device()));
  const auto number = [](std::string_view name, std::optional<double> value) {
    return value ? fmt::format(", {} {:.3f}", name, *value) : "";
  };
  VOLTA_TRY(
      say(globals, fmt::format("{} in {}{}{}\n\nWhat it writes:\n", counted(result.steps, "step"),
                               format_duration(result.seconds), number("loss", result.loss),
                               number("val_loss", result.val_loss))));
  VOLTA_TRY(generate_sample(result.checkpoint, globals, session.device()));
  VOLTA_TRY(say(globals, "\nWhat a token costs:\n"));
  VOLTA_TRY(bench_infer(globals, {.model = result.checkpoint, .runs = {}, .baseline = {}}));
  VOLTA_TRY(session.finish());
  return say(globals, fmt::format("\nThe model is {}. Go on with it:\n"
                                  "  volta generate {} --prompt {}\n",
                                  result.checkpoint, shell_quoted(result.checkpoint),
                                  options.text.empty() ? "'The license'" : "The"));
}

}  // namespace

void add_demo(Command& app, Globals& globals, Action& action) {
  Command* command = app.add_subcommand(
      "demo", "train a small model (about a minute on two fast cores), generate, measure");
  auto options = std::make_shared<DemoOptions>();
  command
      ->add_option("--text", options->text,
                   "text to learn from (default: the license texts of this machine)")
      ->not_a_stream();
  command->add_option("--out", options->out, "folder for the model (default: a new one in TMPDIR)")
      ->check(refuse_empty)
      ->not_a_stream();
  command
      ->add_option("--steps", options->steps,
                   "updates (default: about a minute of them on two fast cores)")
      ->check(range(std::int64_t{1}, kMaxPlausibleCount));
  command->callback([&globals, &action, options] {
    action = [&globals, options] { return demo(globals, *options); };
  });
}

}  // namespace volta::cli
