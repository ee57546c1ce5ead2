// volta merge: a model and an adapter become one model.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "base/json.h"
#include "base/parallel.h"
#include "base/text.h"
#include "command.h"
#include "formats/carried_files.h"
#include "formats/model_folder.h"
#include "formats/model_source.h"
#include "formats/new_folder.h"
#include "formats/non_finite.h"
#include "train/open_model.h"

namespace volta::cli {
namespace {

struct MergeOptions {
  std::string model;
  AdapterOptions adapter;
  std::string out;
};

Status merge(const Globals& globals, const MergeOptions& options) {
  VOLTA_TRY(const Output output, parse_output(globals, {Output::kText, Output::kJson}));
  VOLTA_TRY(refuse_unused(globals, "--dtype"));
  VOLTA_TRY(refuse_unused(globals, "--weights"));
  const std::string& out = options.out;
  VOLTA_TRY(const Session session, Session::create(globals));
  VOLTA_TRY(refuse_gguf(options.model));
  VOLTA_TRY(const ModelSource source, open_model(options.model, interrupted));
  VOLTA_TRY(check_source_stays(options.adapter.folder, out));
  VOLTA_TRY(check_output_folder(globals, out, source.path()));
  VOLTA_TRY(const CarriedFiles carried, read_carried_files(source.path()));
  VOLTA_TRY(const Transformer model, load_adapted_model(source, options.adapter, session.device()));
  if (auto finite = check_finite(model); !finite) {  // Such a model would fail in use.
    return std::unexpected(
        std::move(finite).error().with_context("the merged model; nothing was written"));
  }
  // The folder has another name until it is complete.
  VOLTA_TRY(NewFolder folder, NewFolder::create(out, globals.force));
  VOLTA_TRY(save_model(folder.path(), model, nullptr, interrupted));
  VOLTA_TRY(write_carried_files(folder.path(), carried));
  VOLTA_TRY(folder.publish());
  VOLTA_TRY(session.finish(out));
  if (output == Output::kText) {
    return print(
        fmt::format("model: {}, {} of weights\n", out, format_bytes(model.weight_bytes())));
  }
  JsonWriter json;
  json.begin_object().field("model", out).field("weight_bytes", model.weight_bytes()).end_object();
  return print(json.text() + "\n");
}

}  // namespace

void add_merge(Command& app, Globals& globals, Action& action) {
  Command* command = app.add_subcommand("merge", "merge a LoRA adapter into its model");
  auto options = std::make_shared<MergeOptions>();
  command->add_option("model", options->model, kFolderHelp)->required();
  add_adapter_options(*command, options->adapter, true);
  command->add_option("--out", options->out, "the merged model's folder")
      ->required()
      ->check(refuse_empty)
      ->not_a_stream();
  command->add_flag("--force", globals.force,
                    "replace the model that is in --out; other files of the folder stay");
  command->callback([&globals, &action, options] {
    action = [&globals, options] { return merge(globals, *options); };
  });
}

}  // namespace volta::cli
