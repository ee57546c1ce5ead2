#include "nn/sequence_scorer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>

#include "graph/passes.h"
#include "nn/transformer_graph.h"

namespace volta {
namespace {

// The logits of one run of the head take about this much memory, but the run has at least as many
// rows as are needed to use the weights well.
constexpr std::int64_t kPieceBytes = std::int64_t{32} << 20;
constexpr std::int64_t kFewestRows = 64;
constexpr std::int64_t kMaxRows = std::int64_t{1} << 31;  // Row numbers are i32.
// compute_logits runs sequences with about this many tokens together at once.
constexpr std::int64_t kGroupTokens = 2048;

// Rows of the body's output -> logits, or losses. Inputs: "hidden" f32[N, D], "rows" i32[piece]
// (which of the N rows), "targets" i32[piece].
Result<Graph> head_graph(const TransformerConfig& config, Score score, std::int64_t rows,
                         std::int64_t piece) {
  Graph graph;
  VOLTA_TRY(const ValueId hidden, graph.input("hidden", {DType::kF32, Shape(rows, config.dim)}));
  VOLTA_TRY(const ValueId chosen, graph.input("rows", {DType::kI32, Shape(piece)}));
  graph.set_scope("head");
  VOLTA_TRY(const ValueId x, graph.add_one(Embedding{}, {hidden, chosen}));
  VOLTA_TRY(const ValueId logits, build_head(graph, config, x));
  if (score == Score::kLogits) {
    VOLTA_TRY(graph.output("logits", logits));
    return graph;
  }
  VOLTA_TRY(const ValueId targets, graph.input("targets", {DType::kI32, Shape(piece)}));
  graph.set_scope("loss");
  VOLTA_TRY(const ValueId losses, graph.add_one(CrossEntropy{}, {logits, targets}));
  VOLTA_TRY(graph.output("losses", losses));
  return graph;
}

Result<Executable> load(const Graph& built, const Transformer& model, DType compute_dtype,
                        const TensorLookup& inputs) {
  Device& device = *model.device();
  VOLTA_TRY(Plan plan, model.plan(built, compute_dtype));
  return device.load(std::make_shared<const Plan>(std::move(plan)),
                     [&](const PlanBinding& binding) -> Result<std::optional<Tensor>> {
                       if (binding.kind == ValueKind::kInput) return inputs(binding);
                       return model.bind(binding);
                     });
}

template <typename T>
Status write_input(const Executable& plan, std::string_view name, std::span<const T> values) {
  VOLTA_TRY(Tensor input, plan.binding(name));
  return input.write(values);
}

}  // namespace

Result<SequenceScorer> SequenceScorer::create(const Transformer& model,
                                              const SequenceScorerOptions& options) {
  const TransformerConfig& config = model.config();
  const std::int64_t batch = options.batch;
  const std::int64_t time = options.time;
  if (batch < 1 || time < 1 || time > config.context || batch > kMaxRows / time) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("evaluation: {} sequences of {} tokens; both must be at least 1, and the "
                    "length at most the context of {}",
                    batch, time, config.context));
  }
  const auto keep = [](const PlanBinding&) { return std::nullopt; };
  SequenceScorer scorer(model);
  Graph body;
  VOLTA_TRY(const ValueId x,
            build_body(body, config, batch, time, {}, model.lora().without_dropout()));
  VOLTA_TRY(body.output("hidden", x));
  VOLTA_TRY(scorer.body_, load(body, model, options.compute_dtype, keep));
  std::vector<std::int32_t> positions(static_cast<std::size_t>(time));
  std::iota(positions.begin(), positions.end(), 0);
  VOLTA_TRY(write_input<std::int32_t>(*scorer.body_, "positions", positions));

  const std::int64_t rows = batch * time;
  const auto row_bytes = static_cast<std::int64_t>(sizeof(float)) * config.vocab_size;
  scorer.piece_ = std::min(rows, std::max(kPieceBytes / row_bytes, kFewestRows));
  VOLTA_TRY(const Tensor output, scorer.body_->output("hidden"));
  VOLTA_TRY(const Tensor hidden, output.reshape(Shape(rows, config.dim)));
  const auto inputs = [&](const PlanBinding& binding) -> Result<std::optional<Tensor>> {
    if (binding.name == "hidden") return hidden;
    return std::nullopt;
  };
  VOLTA_TRY(const Graph head, head_graph(config, options.score, rows, scorer.piece_));
  VOLTA_TRY(scorer.head_, load(head, model, options.compute_dtype, inputs));
  scorer.rows_.reserve(static_cast<std::size_t>(scorer.piece_));
  scorer.targets_.reserve(static_cast<std::size_t>(scorer.piece_));
  scorer.losses_.resize(static_cast<std::size_t>(scorer.piece_));
  return scorer;
}

Status SequenceScorer::run_body(std::span<const std::int32_t> ids) {
  VOLTA_TRY(write_input(*body_, "ids", ids));
  return body_->run();
}

// Runs the head on rows_, padded to the number of rows that it takes, and fetches its results.
Status SequenceScorer::run_head() {
  rows_.resize(static_cast<std::size_t>(piece_), 0);
  VOLTA_TRY(write_input<std::int32_t>(*head_, "rows", rows_));
  VOLTA_TRY(head_->run());
  return head_->fetch();
}

Status SequenceScorer::logits(std::span<const std::int32_t> ids, std::int64_t rows,
                              const LogitsSink& sink) {
  VOLTA_TRY(run_body(ids));
  for (std::int64_t first = 0; first < rows; first += piece_) {
    const std::int64_t count = std::min(piece_, rows - first);
    rows_.resize(static_cast<std::size_t>(count));
    std::iota(rows_.begin(), rows_.end(), static_cast<std::int32_t>(first));
    VOLTA_TRY(run_head());
    VOLTA_TRY(const Tensor output, head_->result("logits"));
    VOLTA_TRY(const auto values, output.values<float>());
    VOLTA_TRY(sink(values.first(static_cast<std::size_t>(count * output.shape()[-1]))));
  }
  return {};
}

Status SequenceScorer::losses(std::span<const std::int32_t> ids,
                              std::span<const std::int32_t> targets, std::span<float> losses) {
  if (targets.size() != ids.size() || losses.size() != ids.size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} ids need as many targets and losses, not {} and {}", ids.size(),
                            targets.size(), losses.size()));
  }
  VOLTA_TRY(run_body(ids));
  std::fill(losses.begin(), losses.end(), 0.0f);
  for (std::size_t next = 0; next < targets.size();) {
    rows_.clear();
    targets_.clear();
    for (; next < targets.size() && std::ssize(rows_) < piece_; ++next) {
      if (targets[next] < 0) continue;
      rows_.push_back(static_cast<std::int32_t>(next));
      targets_.push_back(targets[next]);
    }
    const std::size_t count = rows_.size();
    if (count == 0) break;
    targets_.resize(static_cast<std::size_t>(piece_), -1);
    VOLTA_TRY(write_input<std::int32_t>(*head_, "targets", targets_));
    VOLTA_TRY(run_head());
    VOLTA_TRY(const Tensor output, head_->result("losses"));
    VOLTA_TRY(output.read(std::span<float>(losses_)));
    for (std::size_t i = 0; i < count; ++i) {
      losses[static_cast<std::size_t>(rows_[i])] = losses_[i];
    }
  }
  return {};
}

namespace {

Status check_ids(std::span<const std::int32_t> ids, std::int64_t time, std::int64_t vocab) {
  const auto bad =
      std::find_if(ids.begin(), ids.end(), [&](std::int32_t id) { return id < 0 || id >= vocab; });
  if (bad == ids.end()) return {};
  const std::int64_t place = bad - ids.begin();
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("id [{}, {}] is {}; the vocabulary has ids 0 to {}", place / time,
                          place % time, *bad, vocab - 1));
}

}  // namespace

Status compute_logits(const Transformer& model, std::span<const std::int32_t> ids,
                      std::int64_t batch, std::int64_t time, DType compute_dtype,
                      const LogitsSink& sink) {
  const std::int64_t vocab = model.config().vocab_size;
  if (batch < 1 || time < 1 || std::ssize(ids) / time != batch || std::ssize(ids) % time != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} ids are not {} sequences of {}", ids.size(), batch, time));
  }
  VOLTA_TRY(check_ids(ids, time, vocab));
  const std::int64_t group = std::clamp(kGroupTokens / time, std::int64_t{1}, batch);
  VOLTA_TRY(SequenceScorer scorer,
            SequenceScorer::create(model,
                                   {.batch = group, .time = time, .compute_dtype = compute_dtype}));
  std::int64_t done = 0;  // Rows.
  const auto checked = [&](std::span<const float> logits) -> Status {
    const auto bad = std::find_if_not(logits.begin(), logits.end(),
                                      [](float value) { return std::isfinite(value); });
    if (bad != logits.end()) {
      const std::int64_t row = done + (bad - logits.begin()) / vocab;
      return fail(ErrorCode::kNonFinite,
                  fmt::format("the logits of [{}, {}] are not finite: the model's weights are "
                              "damaged or overflow; `volta verify` tells which",
                              row / time, row % time));
    }
    done += std::ssize(logits) / vocab;
    return sink(logits);
  };
  std::vector<std::int32_t> padded(static_cast<std::size_t>(group * time));
  for (std::int64_t first = 0; first < batch; first += group) {
    const auto rows = static_cast<std::size_t>(std::min(group, batch - first) * time);
    const auto part = ids.subspan(static_cast<std::size_t>(first * time), rows);
    std::copy(part.begin(), part.end(), padded.begin());
    VOLTA_TRY(scorer.logits(padded, static_cast<std::int64_t>(rows), checked));
  }
  return {};
}

}  // namespace volta
