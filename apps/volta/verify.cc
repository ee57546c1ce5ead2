// volta verify: checks a model, or every checkpoint of a run, for damage and contradictions.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/text.h"
#include "command.h"
#include "formats/adapter.h"
#include "formats/hub_cache.h"
#include "formats/model_check.h"
#include "formats/model_source.h"
#include "progress.h"
#include "train/adapter_base.h"
#include "train/checkpoint.h"
#include "train/checkpoint_manifest.h"
#include "train/open_model.h"
#include "train/run_folder.h"
#include "train/run_options.h"

namespace volta::cli {
namespace {

struct VerifyOptions {
  std::string model;
  std::string base;  // --model
};

// The result for one folder, and the time that it took.
struct Verified {
  std::string path;
  ModelCheck check;
  std::optional<AdapterBaseReport> base;  // Of an adapter with no other findings.
  double seconds = 0.0;
};

// The paths to verify: a .gguf file or model folder itself, the checkpoints of a run (newest
// first), or both.
Result<std::vector<std::string>> folders_of(const std::string& path) {
  std::vector<std::string> folders;
  if (!is_directory(path)) return std::vector{path};  // A .gguf file, or check_model()'s error.
  if (path_exists(join_path(path, "config.json"))) folders.push_back(path);
  VOLTA_TRY(const auto places, list_checkpoints(path));
  for (const CheckpointPlace& place : places) folders.push_back(place.path);
  const bool empty_run =
      path_exists(join_path(path, kRunFile)) && !path_exists(join_path(path, kAdapterConfigFile));
  // This is most likely a model without a config. check_run_folder() reports what a run lacks.
  if (folders.empty() && !empty_run) folders.push_back(path);
  return folders;
}

// Adds what is wrong with the trainer's state in a checkpoint whose files are those of its
// manifest.
Status check_state(const std::string& path, const ReadCallback& on_read, ModelCheck& check) {
  VOLTA_TRY(CheckpointManifest manifest, read_manifest(path));
  const Status checked = check_trainer_state({path, std::move(manifest)}, on_read);
  if (checked) return {};
  if (checked.error().code() != ErrorCode::kInvalidFile) return checked;
  check.findings.push_back({.kind = Finding::Kind::kInvalid,
                            .where = std::string(kTrainerFile),
                            .what = checked.error().message()});
  return {};
}

// `of_run`: the folder is a checkpoint of the verified run.
Result<Verified> verify_folder(const std::string& path, bool of_run, ThreadPool& pool) {
  const double begun = monotonic_seconds();
  Progress progress;
  // Returns false when the user interrupts.
  const auto on_read = [&](std::int64_t done, std::int64_t all) {
    progress.show(
        [&] { return fmt::format("{}: {} of {}", path, format_bytes(done), format_bytes(all)); });
    return !interrupted();
  };
  auto check = check_model(path, pool, on_read);
  if (!check) return std::unexpected(std::move(check).error());
  VOLTA_TRY(const auto errors, check_checkpoint(path, on_read));
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
  if (has_own && errors.empty()) VOLTA_TRY(check_state(path, on_read, *check));
  return Verified{path, *std::move(check), std::nullopt, monotonic_seconds() - begun};
}

// Adds the problems of the folder of a run itself, before those of its checkpoints.
Status check_run(const std::string& path, std::vector<Verified>& folders) {
  if (!is_directory(path)) return {};
  VOLTA_TRY(const auto errors, check_run_folder(path));
  if (errors.empty()) return {};
  auto own = std::ranges::find(folders, path, &Verified::path);
  if (own == folders.end())
    own = folders.insert(folders.begin(), Verified{path, {}, std::nullopt, 0.0});
  for (const Error& error : errors) {
    const bool both = error.code() == ErrorCode::kInvalidArgument;
    own->check.findings.push_back(
        {.kind = both ? Finding::Kind::kContradiction : Finding::Kind::kInvalid,
         .where = both ? "config.json" : std::string(kRunFile),
         .what = error.message()});
  }
  return {};
}

// Compares the adapters with their base models. All adapters of a run have the same base.
Status check_bases(const Globals& globals, const VerifyOptions& options,
                   std::vector<Verified>& folders) {
  const auto is_adapter = [](const Verified& folder) { return folder.check.adapter; };
  if (std::ranges::none_of(folders, is_adapter)) {
    if (options.base.empty()) return {};
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is not an adapter; leave --model out", options.model));
  }
  std::string model;
  if (!options.base.empty()) {
    VOLTA_TRY(const ModelSource base, open_model(options.base, interrupted));
    model = base.path();
  }
  VOLTA_TRY(const Session session, Session::create(globals));
  for (Verified& folder : folders) {
    if (!is_adapter(folder) || !folder.check.findings.empty()) continue;
    const double begun = monotonic_seconds();
    VOLTA_TRY(folder.base, verify_adapter_base(folder.path, model, *session.device()));
    folder.seconds += monotonic_seconds() - begun;
    if (!folder.base->flaw) continue;
    const bool mismatch = folder.base->flaw->code() == ErrorCode::kMismatch;
    folder.check.findings.push_back(
        {.kind = mismatch ? Finding::Kind::kContradiction : Finding::Kind::kInvalid,
         .where = mismatch ? std::string(kAdapterConfigFile) : folder.base->base,
         .what = folder.base->flaw->message()});
  }
  return {};
}

// One line about a finding. Adds the file if the message does not name it already, as most messages
// of the library do.
std::string line(const std::string& folder, const Finding& finding) {
  const bool is_file = !is_directory(folder);  // A .gguf file.
  const bool named = finding.what.find(is_file ? folder : folder + "/") != std::string::npos;
  const std::string file = is_file ? folder : join_path(folder, finding.where);
  return named ? finding.what : fmt::format("{}: {}", file, finding.what);
}

// The reading speed of a model so large that reading its weights takes most of the time.
std::string speed(const Verified& folder) {
  constexpr std::int64_t kLarge = std::int64_t{64} << 20;
  if (folder.check.bytes < kLarge || folder.seconds <= 0.0) return "";
  const double rate = static_cast<double>(folder.check.bytes) / folder.seconds;
  return fmt::format(" ({}/s)", format_bytes(static_cast<std::int64_t>(rate)));
}

// A line about an adapter's base model; empty when it is a finding.
std::string base_line(const Verified& folder) {
  const AdapterBaseReport& base = *folder.base;
  if (base.flaw) return "";
  const std::string name = base.base.empty() ? "its base model" : "its base model " + base.base;
  const std::string line =
      base.unchecked.empty()
          ? fmt::format("{}: {} has the weights that it was trained on", folder.path, name)
          : fmt::format("{}: {} was not checked: {}", folder.path, name, base.unchecked);
  return one_line(line) + "\n";
}

// Why the base model was not compared; empty when it was. A base that cannot be read is a finding,
// and was not compared either.
std::string reason_unchecked(const AdapterBaseReport& base) {
  if (!base.flaw || base.flaw->code() == ErrorCode::kMismatch) return base.unchecked;
  return base.flaw->message();
}

std::string to_text(const std::vector<Verified>& folders) {
  std::string text;
  for (const Verified& folder : folders) {
    const ModelCheck& check = folder.check;
    for (const Finding& finding : check.findings) {
      text += one_line(line(folder.path, finding)) + "\n";  // It may hold names from the files.
    }
    const std::string unread =
        check.not_read == 0 ? ""
                            : fmt::format(" ({} of them for other programs only)", check.not_read);
    text += fmt::format(
        "{}: {}: {} tensors{}, {} in {}, {}, {}{}\n", one_line(folder.path),
        check.findings.empty() ? "good" : counted(std::ssize(check.findings), "finding"),
        check.tensors, unread, format_bytes(check.bytes),
        counted(std::ssize(check.weight_files), "file"),
        check.adapter         ? "an adapter"
        : check.has_tokenizer ? "a tokenizer"
                              : "no tokenizer",
        format_duration(folder.seconds), speed(folder));
    if (folder.base) text += base_line(folder);
  }
  return text;
}

std::string to_json(const std::vector<Verified>& folders, bool good) {
  JsonWriter json;
  json.begin_object().field("ok", good).key("folders").begin_array();
  for (const Verified& folder : folders) {
    json.begin_object().field("path", folder.path).field("ok", folder.check.findings.empty());
    json.field("tensors", folder.check.tensors).field("not_read", folder.check.not_read);
    json.field("bytes", folder.check.bytes);
    json.field("adapter", folder.check.adapter);
    json.field("tokenizer", folder.check.has_tokenizer).field("seconds", folder.seconds);
    if (folder.base) {
      json.key("base").begin_object().field("path", folder.base->base);
      json.field("checked", reason_unchecked(*folder.base).empty());
      json.field("reason", reason_unchecked(*folder.base)).end_object();
    }
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

// An invalid file takes precedence over a contradiction.
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
              fmt::format("{}: {}", model, counted(all, "finding")));
}

Status verify(const Globals& globals, const VerifyOptions& options) {
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
  VOLTA_TRY(check_run(model, folders));
  VOLTA_TRY(check_bases(globals, options, folders));
  Status result = verdict(folders, options.model);
  VOLTA_TRY(
      print(output == Output::kJson ? to_json(folders, result.has_value()) : to_text(folders)));
  return result;
}

}  // namespace

void add_verify(Command& app, Globals& globals, Action& action) {
  Command* command =
      app.add_subcommand("verify", "check a model, an adapter, or the checkpoints of a run");
  auto options = std::make_shared<VerifyOptions>();
  command->add_option("path", options->model, fmt::format("{}, or an adapter", kModelHelp))
      ->required();
  command->add_option("--model", options->base,
                      "the base model of an adapter, where it is not at its recorded path");
  command->callback([&globals, &action, options] {
    action = [&globals, options] { return verify(globals, *options); };
  });
}

}  // namespace volta::cli
