// volta verify: whether a model, or every checkpoint of a run, is what it says it is.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/parallel.h"
#include "base/text.h"
#include "command.h"
#include "io/model_check.h"
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

// A model folder itself, or the checkpoints of a run, newest first.
Result<std::vector<std::string>> folders_of(const std::string& path) {
  std::vector<std::string> folders;
  if (path_exists(join_path(path, "config.json"))) {
    folders.push_back(path);
    return folders;
  }
  VOLTA_TRY(const auto places, list_checkpoints(path));
  for (const CheckpointPlace& place : places) folders.push_back(place.path);
  if (folders.empty()) folders.push_back(path);  // A model without a config, most likely.
  return folders;
}

Result<Verified> verify_folder(const std::string& path, ThreadPool& pool) {
  const double begun = monotonic_seconds();
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  double drawn_at = begun;
  const auto go_on = [&](std::int64_t bytes) {
    const double now = monotonic_seconds();
    if (terminal && now - drawn_at > 0.1) {
      note(fmt::format("\r\033[K{}: {}", path, format_bytes(bytes)));
      drawn_at = now;
    }
    return !interrupted();
  };
  auto check = check_model(path, pool, go_on);
  if (drawn_at > begun) note("\r\033[K");
  if (!check) return std::unexpected(std::move(check).error());
  for (const Error& error : check_checkpoint(path)) {
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
  const bool named = finding.what.find(folder + "/") != std::string::npos;
  return named ? finding.what
               : fmt::format("{}: {}", join_path(folder, finding.where), finding.what);
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
    for (const Finding& finding : check.findings) text += line(folder.path, finding) + "\n";
    text += fmt::format("{}: {}: {} tensors, {} in {}, {}, {}{}\n", folder.path,
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
  VOLTA_TRY(refuse_gguf(options.model));
  VOLTA_TRY(ThreadPool pool, ThreadPool::create(globals.threads));
  VOLTA_TRY(const std::vector<std::string> paths, folders_of(options.model));
  std::vector<Verified> folders;
  for (const std::string& path : paths) {
    VOLTA_TRY(Verified folder, verify_folder(path, pool));
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
  command->add_option("model", options->model, "model folder, or the folder of a training run")
      ->required();
  command->callback([&globals, &action, options] {
    action = [&globals, options] { return verify(globals, *options); };
  });
}

}  // namespace volta::cli
