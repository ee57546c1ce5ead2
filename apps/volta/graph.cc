// volta graph: shows the graph that a model really runs, after the passes, or the plan in a file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>

#include "base/file.h"
#include "command.h"
#include "formats/model_source.h"
#include "graph/passes.h"
#include "graph/plan.h"
#include "nn/step_plans.h"
#include "nn/training_graph.h"
#include "nn/transformer_graph.h"
#include "train/open_model.h"
#include "train/run_options.h"

namespace volta::cli {
namespace {

struct GraphOptions {
  std::string model;  ///< Or the JSON file of a plan.
  std::string phase;  ///< Empty: decode.
  std::int64_t batch = 0;
  std::int64_t tokens = 0;
};

// The architecture, and how it is trained when the model is the folder of a run.
struct GraphModel {
  TransformerConfig config = tiny_lm_config();
  TrainerOptions trainer = {.batch = 1, .time = 0};
};

Result<GraphModel> read_model(const std::string& path) {
  GraphModel model;
  if (path.empty()) return model;
  VOLTA_TRY(const ModelSource source, open_model(path, interrupted));
  VOLTA_TRY(model.config, source.config());
  if (path_exists(join_path(path, kRunFile))) {
    VOLTA_TRY(const RunOptions run, load_run_options(path));
    model.trainer = run.trainer;
  }
  return model;
}

Status check_rows(std::int64_t rows, std::int64_t context) {
  if (rows <= context) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--tokens {}: the model's context is {}", rows, context));
}

// The row counts of a step that a device has.
std::span<const std::int64_t> step_sizes_of(const InferenceChoices& choices) {
  const auto all = step_sizes();
  const auto end = std::ranges::upper_bound(all, choices.step_rows);
  return all.first(static_cast<size_t>(end - all.begin()));
}

Result<Graph> build(const GraphModel& model, const GraphOptions& options,
                    const InferenceChoices& choices) {
  const TransformerConfig& config = model.config;
  const std::int64_t batch = std::max<std::int64_t>(options.batch, 1);
  if (options.phase.empty() || options.phase == "decode")
    return build_cached_graph(
        config,
        {.rows = batch,
         .logit_rows = batch,
         .cache = {.slots = batch, .dtype = choices.cache, .step_rows = choices.step_rows}});
  if (options.phase == "prefill") {
    const auto sizes = step_sizes_of(choices);
    const std::int64_t rows = options.tokens > 0 ? options.tokens : 64;
    if (std::ranges::find(sizes, rows) == sizes.end() || options.batch > 1) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("prompts run in pieces of --tokens {}, shown one at a time",
                              fmt::join(sizes, ", ")));
    }
    VOLTA_TRY(check_rows(rows, config.context));
    return build_cached_graph(
        config, {.rows = rows, .cache = {.dtype = choices.cache, .step_rows = choices.step_rows}});
  }
  const bool training = options.phase == "train" && model.trainer.time > 0;
  const std::int64_t usual = training ? model.trainer.time : config.context;
  const std::int64_t time = options.tokens > 0 ? options.tokens : usual;
  VOLTA_TRY(check_rows(time, config.context));
  if (options.phase == "eval") return build_evaluation_graph(config, batch, time, false);
  if (options.phase == "train") {
    const TrainerOptions& trainer = model.trainer;
    const TrainingGraphOptions wanted{.batch = options.batch > 0 ? batch : trainer.batch,
                                      .time = time,
                                      .accumulate = trainer.accumulate,
                                      .dropout = {trainer.dropout},
                                      .optimizer = trainer.optimizer};
    return trainer.accumulate > 1 ? build_accumulate_graph(config, wanted)
                                  : build_training_graph(config, wanted);
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--phase {}: use train, eval, prefill or decode", options.phase));
}

// Whether this may be a plan that this command wrote with --output json.
bool is_plan_file(const std::string& path) {
  if (is_stream(path)) return true;
  return path.ends_with(".json") && path_exists(path) && !is_directory(path);
}

Status print_plan(const Plan& plan, Output output) {
  return print(output == Output::kJson ? to_json(plan) + "\n" : to_text(plan));
}

Status show_file(const Globals& globals, const GraphOptions& options) {
  VOLTA_TRY(const Output output, parse_output(globals, {Output::kText, Output::kJson}));
  VOLTA_TRY(refuse_unused(globals, kNothingRuns));
  if (!options.phase.empty() || options.batch > 0 || options.tokens > 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--phase, --batch and --tokens have no effect on the plan in {}: drop "
                            "them, or give a model",
                            input_name(options.model)));
  }
  constexpr std::int64_t kMaxPlanBytes = std::int64_t{64} << 20;
  VOLTA_TRY(const std::string text, read_input(options.model, kMaxPlanBytes));
  VOLTA_TRY(const Plan plan, plan_from_json(text, input_name(options.model)));
  return print_plan(plan, output);
}

Status show(const Globals& globals, const GraphOptions& options) {
  if (is_plan_file(options.model)) return show_file(globals, options);
  VOLTA_TRY(const Output output,
            parse_output(globals, {Output::kText, Output::kDot, Output::kJson}));
  VOLTA_TRY(refuse_unused(globals, "--profile"));
  if (options.phase == "train") VOLTA_TRY(refuse_unused(globals, "--weights"));
  if ((options.phase.empty() || options.phase == "decode") && options.tokens > 0) {
    return fail(ErrorCode::kInvalidArgument,
                "--tokens has no effect on decoding, one token at a time: drop it, or give "
                "--phase prefill, eval or train");
  }
  VOLTA_TRY(const DType dtype, compute_dtype(globals));
  VOLTA_TRY(const WeightFormat format, weight_format(globals));
  VOLTA_TRY(const Session session, Session::create(globals));
  VOLTA_TRY(const GraphModel model, read_model(options.model));
  const InferenceChoices choices = session.device()->inference_choices(dtype);
  VOLTA_TRY(const Graph built, build(model, options, choices));
  // Training uses plain weights; all other phases use packed ones.
  VOLTA_TRY(const Graph stored, options.phase == "train"
                                    ? Result<Graph>(built)
                                    : prepack(built, *session.device(), format));
  VOLTA_TRY(
      const Graph graph,
      optimize(stored, *session.device(),
               {.compute_dtype = dtype,
                .rounding = options.phase == "train" ? Rounding::kActivations : choices.rounding}));
  VOLTA_TRY(const Plan plan, make_plan(graph, *session.device()));
  if (output == Output::kDot) return print(to_dot(graph, plan));
  return print_plan(plan, output);
}

}  // namespace

void add_graph(Command& app, Globals& globals, Action& action) {
  Command* command = app.add_subcommand(
      "graph", "the graph a model really runs: ops, shapes, bytes, flops, arena offsets");
  auto options = std::make_shared<GraphOptions>();
  command->add_option(
      "model", options->model,
      fmt::format("{} (default: the default TinyLm), or a file X.json that --output json wrote (- "
                  "for standard input)",
                  kModelHelp));
  command->add_option("--phase", options->phase, "train, eval, prefill or decode (default)")
      ->suggest({"train", "eval", "prefill", "decode"});
  command->add_option("--batch", options->batch, "sequences (default: the run's, or 1)")
      ->check(range(std::int64_t{1}, std::int64_t{65536}));
  command
      ->add_option("--tokens", options->tokens, "tokens a sequence, or rows of a piece of a prompt")
      ->check(range(std::int64_t{1}, std::int64_t{1} << 24));
  command->callback([&globals, &action, options] {
    action = [&globals, options] { return show(globals, *options); };
  });
}

}  // namespace volta::cli
