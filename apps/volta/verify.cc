// volta verify: whether a model, or every checkpoint of a run, is what it says it is.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/text.h"
#include "command.h"
#include "io/gguf/gguf_file.h"
#include "io/hub_cache.h"
#include "io/model_check.h"
#include "status_line.h"
#include "train/checkpoint.h"

namespace volta::cli {
namespace {

struct Options {
  std::string model;
};

// One folder, and how long it took.
struct Verified {
  std::string path;
  ModelCheck check;
  double seconds = 0.0;
};

// A .gguf file or model folder itself, the checkpoints of a run, newest first, or both.
Result<std::vector<std::string>> folders_of(const std::string& path) {
  std::vector<std::string> folders;
  if (is_gguf_path(path) || path_exists(join_path(path, "config.json"))) folders.push_back(path);
  if (is_gguf_path(path)) return folders;
  if (!is_directory(path)) return std::vector{path};  // check_model() says what is wrong.
  VOLTA_TRY(const auto places, list_checkpoints(path));
  for (const CheckpointPlace& place : places) folders.push_back(place.path);
  if (folders.empty()) folders.push_back(path);  // A model without a config, most likely.
  return folders;
}

// How far the reading is: on a terminal a line that is drawn over, else a line every ten seconds.
class ReadingProgress {
 public:
  explicit ReadingProgress(std::string path) : path_(std::move(path)) {}

  /// False when the user wants it to end.
  bool operator()(std::int64_t done, std::int64_t all) {
    const double now = monotonic_seconds();
    if (now - shown_at_ >= (line_.on_terminal() ? 0.1 : 10.0)) {
      const std::string text =
          fmt::format("{}: {} of {}", path_, format_bytes(done), format_bytes(all));
      if (line_.on_terminal()) {
        line_.show(text);
      } else {
        note(one_line(text) + "\n");
      }
      shown_at_ = now;
    }
    return !interrupted();
  }

 private:
  std::string path_;
  StatusLine line_;
  double shown_at_ = monotonic_seconds();
};

// `of_run`: it is a checkpoint of the run that is verified.
Result<Verified> verify_folder(const std::string& path, bool of_run, ThreadPool& pool) {
  const double begun = monotonic_seconds();
  ReadingProgress progress(path);
  auto check = check_model(path, pool, std::ref(progress));
  if (!check) return std::unexpected(std::move(check).error());
  VOLTA_TRY(const auto errors, check_checkpoint(path, std::ref(progress)));
  VOLTA_TRY(const bool has_own, has_manifest(path));
  if (of_run && !has_own) {
    check->findings.push_back({.kind = Finding::Kind::kInvalid,
                               .where = "manifest.json",
                               .what = "it is missing, or not Volta's; the commands that take a "
                                       "run skip this checkpoint"});
  }
  for (const Error& error : errors) {
    const bool contradiction = error.code() == ErrorCode::kMismatch;
    check->findings.push_back(
        {.kind = contradiction ? Finding::Kind::kContradiction : Finding::Kind::kInvalid,
         .where = "manifest.json",
         .what = error.message()});
  }
  return Verified{path, *std::move(check), monotonic_seconds() - begun};
}

// Messages of the library name the file already, with its folder.
std::string line(const std::string& folder, const Finding& finding) {
  const bool gguf = is_gguf_path(folder);
  const bool named = finding.what.find(gguf ? folder : folder + "/") != std::string::npos;
  const std::string file = gguf ? folder : join_path(folder, finding.where);
  return named ? finding.what : fmt::format("{}: {}", file, finding.what);
}

std::string count(std::size_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

// Of a model so large that reading its weights is what takes the time.
std::string speed(const Verified& folder) {
  constexpr std::int64_t kLarge = std::int64_t{64} << 20;
  if (folder.check.bytes < kLarge || folder.seconds <= 0.0) return "";
  const double rate = static_cast<double>(folder.check.bytes) / folder.seconds;
  return fmt::format(" ({}/s)", format_bytes(static_cast<std::int64_t>(rate)));
}

std::string to_text(const std::vector<Verified>& folders) {
  std::string text;
  for (const Verified& folder : folders) {
    const ModelCheck& check = folder.check;
    for (const Finding& finding : check.findings) {
      text += one_line(line(folder.path, finding)) + "\n";  // It may hold names from the files.
    }
    text += fmt::format("{}: {}: {} tensors, {} in {}, {}, {}{}\n", one_line(folder.path),
                        check.findings.empty() ? "good" : count(check.findings.size(), "finding"),
                        check.tensors, format_bytes(check.bytes),
                        count(check.weight_files.size(), "file"),
                        check.adapter         ? "an adapter"
                        : check.has_tokenizer ? "a tokenizer"
                                              : "no tokenizer",
                        format_duration(folder.seconds), speed(folder));
  }
  return text;
}

std::string to_json(const std::vector<Verified>& folders, bool good) {
  JsonWriter json;
  json.begin_object().field("ok", good).key("folders").begin_array();
  for (const Verified& folder : folders) {
    json.begin_object().field("path", folder.path).field("ok", folder.check.findings.empty());
    json.field("tensors", folder.check.tensors).field("bytes", folder.check.bytes);
    json.field("adapter", folder.check.adapter);
    json.field("tokenizer", folder.check.has_tokenizer).field("seconds", folder.seconds);
    json.key("weight_files").begin_array();
    for (const std::string& file : folder.check.weight_files) json.value(file);
    json.end_array().key("findings").begin_array();
    for (const Finding& finding : folder.check.findings) {
      json.begin_object().field("kind", finding_name(finding.kind));
      json.field("file", finding.where).field("message", finding.what).end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().end_object();
  return std::move(json).take() + "\n";
}

// What is invalid weighs more than what contradicts something else.
Status verdict(const std::vector<Verified>& folders, const std::string& model) {
  std::size_t invalid = 0;
  std::size_t all = 0;
  for (const Verified& folder : folders) {
    all += folder.check.findings.size();
    invalid += static_cast<std::size_t>(
        std::ranges::count(folder.check.findings, Finding::Kind::kInvalid, &Finding::kind));
  }
  if (all == 0) return {};
  return fail(invalid > 0 ? ErrorCode::kInvalidFile : ErrorCode::kMismatch,
              fmt::format("{}: {}", model, count(all, "finding")));
}

Status verify(const Globals& globals, const Options& options) {
  VOLTA_TRY(const Output output, parse_output(globals, {Output::kText, Output::kJson}));
  VOLTA_TRY(refuse_unused(globals, kNothingRuns));
  VOLTA_TRY(ThreadPool pool, ThreadPool::create(globals.threads));
  VOLTA_TRY(const std::string model, find_model_path(options.model));
  VOLTA_TRY(const std::vector<std::string> paths, folders_of(model));
  std::vector<Verified> folders;
  for (const std::string& path : paths) {
    VOLTA_TRY(Verified folder, verify_folder(path, path != model, pool));
    folders.push_back(std::move(folder));
  }
  Status result = verdict(folders, options.model);
  VOLTA_TRY(
      print(output == Output::kJson ? to_json(folders, result.has_value()) : to_text(folders)));
  return result;
}

}  // namespace

void add_verify(Command& app, Globals& globals, Action& action) {
  Command* command = app.add_subcommand("verify", "check a model, or the checkpoints of a run");
  auto options = std::make_shared<Options>();
  command
      ->add_option("model", options->model,
                   "model folder, .gguf file, or the folder of a training run")
      ->required();
  command->callback([&globals, &action, options] {
    action = [&globals, options] { return verify(globals, *options); };
  });
}

}  // namespace volta::cli
