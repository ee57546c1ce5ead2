// volta graph: the graph a model really runs, after the passes.
#include <fmt/format.h>

#include <memory>

#include "base/file.h"
#include "command.h"
#include "graph/passes.h"
#include "graph/plan.h"
#include "io/model_folder.h"
#include "nn/transformer_graph.h"

namespace volta::cli {
namespace {

struct Options {
  std::string model;
  std::string phase = "decode";
  std::int64_t batch = 1;
  std::int64_t tokens = 0;
};

Result<Graph> build(const TransformerConfig& config, const Options& options) {
  if (options.phase == "decode" || options.phase == "prefill") {
    const std::int64_t rows = options.tokens > 0 ? options.tokens : 64;
    return build_cached_graph(
        config, {.slots = options.batch, .chunk = options.phase == "decode" ? 1 : rows});
  }
  const std::int64_t time = options.tokens > 0 ? options.tokens : config.context;
  if (options.phase == "eval") return build_evaluation_graph(config, options.batch, time, false);
  if (options.phase == "train") {
    return build_training_graph(config, {.batch = options.batch, .time = time});
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--phase {}: use train, eval, prefill or decode", options.phase));
}

Status show(const Globals& globals, const Options& options) {
  VOLTA_TRY(const Output output,
            parse_output(globals, {Output::kText, Output::kDot, Output::kJson}));
  VOLTA_TRY(const DType dtype, compute_dtype(globals));
  VOLTA_TRY(const Session session, Session::create(globals));
  TransformerConfig config = tiny_lm_config();
  if (!options.model.empty()) {
    VOLTA_TRY(const std::string directory, find_model(options.model));
    const std::string path = join_path(directory, "config.json");
    VOLTA_TRY(const std::string json, read_text_file(path, std::int64_t{1} << 24));
    VOLTA_TRY(config, parse_model_config(json, path));
  }
  VOLTA_TRY(const Graph built, build(config, options));
  // What trains keeps its weights plain; everything else runs on packed ones.
  VOLTA_TRY(const Graph stored, options.phase == "train"
                                    ? Result<Graph>(built)
                                    : prepack(built, *session.device(), dtype));
  VOLTA_TRY(const Graph graph, optimize(stored, *session.device(), {.compute_dtype = dtype}));
  if (output == Output::kDot) return print(to_dot(graph));
  VOLTA_TRY(const Plan plan, make_plan(graph, *session.device()));
  return print(output == Output::kJson ? to_json(plan) + "\n" : to_text(plan));
}

}  // namespace

void add_graph(CLI::App& app, Globals& globals, Action& action) {
  CLI::App* command = app.add_subcommand(
      "graph", "the graph a model really runs: ops, shapes, bytes, flops, arena offsets");
  auto options = std::make_shared<Options>();
  command->add_option("model", options->model, "model folder or run (default: the default TinyLm)");
  command->add_option("--phase", options->phase, "train, eval, prefill or decode (default)");
  command->add_option("--batch", options->batch, "sequences (default 1)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{65536}));
  command->add_option("--tokens", options->tokens, "tokens a sequence, or rows of a prefill chunk")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24));
  command->callback([&globals, &action, options] {
    action = [&globals, options] { return show(globals, *options); };
  });
}

}  // namespace volta::cli
