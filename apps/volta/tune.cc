// volta tune: measures how this CPU's matrix products are best cut up, and keeps what it found.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/cpu.h"
#include "base/file.h"
#include "command.h"
#include "device/cpu_device.h"
#include "device/device_kind.h"
#include "device/matmul_shapes.h"
#include "graph/passes.h"
#include "io/model_folder.h"
#include "nn/decoder.h"
#include "nn/training_graph.h"
#include "nn/transformer_graph.h"
#include "train/run_options.h"
#include "tune_report.h"
#include "tuner/candidates.h"
#include "tuner/matmul_measure.h"
#include "tuner/search.h"
#include "tuner/tuning_cache.h"

namespace volta::cli {
namespace {

using tuner::TuningCache;
using tuner::TuningEntry;

struct Options {
  std::int64_t dim = 0, m = 0, n = 0, k = 0;
  std::string model;
  std::string phase;  ///< Empty: all.
  bool plain = false;
  int runs = 15;
  double budget = 8.0;
};

// Times taken while threads wait for each other, or for the quota, are not the kernels'.
void warn_of_scarce_cpus(int threads) {
  const auto quota = cgroup_cpu_quota();
  const double cpus = std::min<double>(usable_cpu_count(), quota.value_or(threads));
  if (cpus >= threads) return;
  note(
      fmt::format("volta: warning: {} thread{} share {:.4g} CPU{}{}: what is measured here may not "
                  "be what is fastest elsewhere\n",
                  threads, threads == 1 ? "" : "s", cpus, cpus == 1 ? "" : "s",
                  quota && *quota < threads ? " (the cgroup's quota)" : ""));
}

Result<std::shared_ptr<CpuDevice>> open_cpu(const Globals& globals) {
  if (!globals.device.empty()) {
    VOLTA_TRY(const DeviceKind kind, DeviceKind::parse(globals.device, "--device"));
    if (kind != DeviceKind(DeviceKind::kCpu)) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("--device {}: tuning is for the CPU's kernels", globals.device));
    }
  }
  return CpuDevice::create({.threads = globals.threads, .simd = {}, .tuning = nullptr});
}

Result<DType> weight_type(const Globals& globals) {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (globals.dtype == dtype_name(type)) return type;
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--dtype {}: use f32, bf16 or f16", globals.dtype));
}

// What a model trains: the folder of a run knows the sizes, others get usual ones.
Result<TrainingGraphOptions> training_of(const std::string& path, const TransformerConfig& config) {
  TrainingGraphOptions wanted{.batch = 4, .time = std::min<std::int64_t>(config.context, 256)};
  if (!path_exists(join_path(path, kRunFile))) return wanted;
  VOLTA_TRY(const RunOptions run, load_run_options(path));
  wanted.batch = run.trainer.batch;
  if (run.trainer.time > 0) wanted.time = run.trainer.time;
  return wanted;
}

// The products of decoding, of each chunk of a prompt, and of training.
Result<std::vector<cpu::MatMulShape>> shapes_of_model(const Globals& globals,
                                                      const Options& options, CpuDevice& device) {
  VOLTA_TRY(const DType dtype, compute_dtype(globals));
  VOLTA_TRY(const WeightFormat format, weight_format(globals));
  VOLTA_TRY(const std::string directory, find_model(options.model));
  VOLTA_TRY(const TransformerConfig config, load_model_config(directory));
  VOLTA_TRY(const auto weights, open_weights(directory, config));
  VOLTA_TRY(const auto loaded,
            loaded_specs(config, *weights, device, {.packed = true, .format = format}));
  const auto spec_of = [&](const Value& value) {
    const auto found = loaded.find(value.name);
    return found == loaded.end() ? value.spec : found->second;
  };
  std::vector<cpu::MatMulShape> shapes;
  const auto add = [&](const Graph& built, bool pack) -> Status {
    VOLTA_TRY(const Graph stored,
              pack ? set_parameter_specs(built, spec_of) : Result<Graph>(built));
    VOLTA_TRY(const Graph graph, optimize(stored, device, {.compute_dtype = dtype}));
    for (const cpu::MatMulShape& shape : matmul_shapes(graph, device.threads())) {
      const bool known = std::ranges::any_of(
          shapes, [&](const cpu::MatMulShape& other) { return tuner::same_choice(shape, other); });
      if (!known) shapes.push_back(shape);
    }
    return {};
  };
  const bool all = options.phase.empty() || options.phase == "all";
  for (const std::int64_t chunk : prefill_chunks()) {
    if (chunk > config.context || !(all || options.phase == (chunk == 1 ? "decode" : "prompt"))) {
      continue;
    }
    VOLTA_TRY(const Graph graph, build_cached_graph(config, {.chunk = chunk}));
    VOLTA_TRY(add(graph, true));
  }
  if (all || options.phase == "train") {
    VOLTA_TRY(const TrainingGraphOptions wanted, training_of(options.model, config));
    VOLTA_TRY(const Graph graph, build_training_graph(config, wanted));
    VOLTA_TRY(add(graph, false));
  }
  if (!shapes.empty()) return shapes;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: has no products of floats to tune in phase '{}'", options.model,
                          all ? "all" : options.phase));
}

Result<std::vector<cpu::MatMulShape>> shapes_to_tune(const Globals& globals, const Options& options,
                                                     CpuDevice& device) {
  const bool sizes = options.m > 0 || options.n > 0 || options.k > 0;
  const int ways = (options.dim > 0 ? 1 : 0) + (sizes ? 1 : 0) + (options.model.empty() ? 0 : 1);
  if (ways != 1 || (sizes && (options.m == 0 || options.n == 0 || options.k == 0))) {
    return fail(ErrorCode::kInvalidArgument,
                "say what to tune: --dim N, or --m M --n N --k K, or --model DIR");
  }
  if (!options.model.empty() && options.plain) {
    return fail(ErrorCode::kInvalidArgument, "--plain goes with --dim or --m --n --k");
  }
  if (options.model.empty() && !options.phase.empty()) {
    return fail(ErrorCode::kInvalidArgument, "--phase goes with --model");
  }
  if (!options.model.empty()) return shapes_of_model(globals, options, device);
  VOLTA_TRY(const DType type, weight_type(globals));
  cpu::MatMulShape shape = {.b_type = type,
                            .packed = !options.plain,
                            .threads = device.threads(),
                            .m = options.m,
                            .n = options.n,
                            .k = options.k};
  if (options.dim > 0) shape.m = shape.n = shape.k = options.dim;
  return std::vector{shape};
}

double gflops(double flops, double seconds) { return seconds > 0 ? flops / seconds * 1e-9 : 0; }

// Draws where a search stands.
class Bar {
 public:
  Bar(std::string name) : name_(std::move(name)), terminal_(::isatty(STDERR_FILENO) == 1) {}
  void draw(const tuner::SearchProgress& progress) {
    if (!terminal_ || ++calls_ % 16 != 0) return;
    constexpr int kWidth = 24;
    std::string cells;
    for (int i = 0; i < kWidth; ++i) cells += i < progress.part * kWidth ? "█" : "░";
    note(fmt::format("\r\033[K{} {}  {} measured", cells, name_, progress.measured));
    if (progress.best_gain > 0) note(fmt::format(", {:.2f}x", progress.best_gain));
  }
  void finish(std::string_view line) {
    note(fmt::format("{}{}\n", terminal_ ? "\r\033[K" : "", line));
  }

 private:
  std::string name_;
  bool terminal_;
  std::int64_t calls_ = 0;
};

Result<TunedShape> tune_shape(const cpu::MatMulShape& shape, const std::string& name,
                              cpu::Simd simd, const Options& options) {
  VOLTA_TRY(auto measure, tuner::MatMulMeasure::create(shape, simd));
  const cpu::MatMulShape& measured = measure.shape();
  const auto grid = tuner::candidates(measured, simd, tuner::cpu_signature().caches);
  Bar bar(name);
  VOLTA_TRY(const tuner::SearchResult result,
            tuner::search(grid, cpu::default_parameters(simd, measured.m, measured.packed), measure,
                          {.budget_seconds = options.budget, .runs = options.runs},
                          [&](const tuner::SearchProgress& progress) {
                            bar.draw(progress);
                            return !interrupted();
                          }));
  TunedShape tuned{{.simd = simd,
                    .shape = shape,
                    .parameters = result.chosen,
                    .default_gflops = gflops(measure.flops(), result.before.seconds),
                    .tuned_gflops = gflops(measure.flops(), result.after.seconds)},
                   result};
  bar.finish(result.default_kept
                 ? fmt::format("{}: the default is within noise of the best ({} tried)", name,
                               result.tried)
                 : fmt::format("{}: {:.2f}x ({} tried)", name, result.gain, result.tried));
  return tuned;
}

Status tune_matmul(const Globals& globals, const Options& options) {
  VOLTA_TRY(const Output output,
            parse_output(globals, {Output::kText, Output::kJson, Output::kCsv}));
  VOLTA_TRY(refuse_profile(globals));
  VOLTA_TRY(const auto device, open_cpu(globals));
  VOLTA_TRY(const auto shapes, shapes_to_tune(globals, options, *device));
  // Found out before the work: where there is no place for the results, and who else measures.
  VOLTA_TRY(const TuningCache cache, TuningCache::open());
  auto alone = cache.lock_for_measuring();
  if (!alone) return std::unexpected(std::move(alone).error().with_context("cannot tune"));
  warn_of_scarce_cpus(device->threads());
  TuneReport report{.isa = cpu::simd_name(device->simd()),
                    .threads = device->threads(),
                    .file = cache.path(),
                    .shapes = {}};
  for (const cpu::MatMulShape& shape : shapes) {
    const std::string name =
        fmt::format("[{}/{}] {}", report.shapes.size() + 1, shapes.size(), name_of(shape));
    auto tuned = tune_shape(shape, name, device->simd(), options);
    if (!tuned && shapes.size() > 1) {
      return std::unexpected(std::move(tuned).error().with_context(
          fmt::format("{}, after {} of {} shapes, which are kept", name_of(shape),
                      report.shapes.size(), shapes.size())));
    }
    if (!tuned) return std::unexpected(std::move(tuned).error());
    VOLTA_TRY(cache.add({&tuned->entry, 1}));
    report.shapes.push_back(*std::move(tuned));
  }
  switch (output) {
    case Output::kJson:
      return print(to_json(report));
    case Output::kCsv:
      return print(to_csv(report));
    default:
      return print(to_text(report));
  }
}

Status show(const Globals& globals) {
  VOLTA_TRY(const Output output,
            parse_output(globals, {Output::kText, Output::kJson, Output::kCsv}));
  VOLTA_TRY(const TuningCache cache, TuningCache::open());
  VOLTA_TRY(const auto entries, cache.read());
  switch (output) {
    case Output::kJson:
      return print(tuner::tuning_to_json(entries, tuner::cpu_signature()));
    case Output::kCsv:
      return print(to_csv(entries));
    default:
      return print(to_text(entries, cache.path()));
  }
}

Status clear() {
  VOLTA_TRY(const TuningCache cache, TuningCache::open());
  VOLTA_TRY(const bool removed, cache.clear());
  return print(fmt::format("{}: {}\n", cache.path(), removed ? "removed" : "was not there"));
}

Status export_to(const std::string& file) {
  VOLTA_TRY(const TuningCache cache, TuningCache::open());
  VOLTA_TRY(const auto entries, cache.read());
  if (entries.empty()) {
    return fail(ErrorCode::kNotFound, "nothing is tuned yet: `volta tune matmul` does it");
  }
  VOLTA_TRY(write_file_atomic(file, tuner::tuning_to_json(entries, tuner::cpu_signature())));
  return print(fmt::format("{} shapes written to {}\n", entries.size(), file));
}

Status import_from(const std::string& file) {
  VOLTA_TRY(const TuningCache cache, TuningCache::open());
  VOLTA_TRY(const std::string text, read_text_file(file, tuner::kMostTuningBytes));
  VOLTA_TRY(const auto entries, tuner::parse_tuning(text, file, tuner::cpu_signature()));
  VOLTA_TRY(cache.add(entries));
  return print(fmt::format("{} shapes added to {}\n", entries.size(), cache.path()));
}

void add_matmul(CLI::App& tune, Globals& globals, Action& action) {
  CLI::App* command = tune.add_subcommand("matmul", "find the best parameters of matrix products");
  auto options = std::make_shared<Options>();
  const auto size = CLI::Range(std::int64_t{1}, tuner::kMostDim);
  command->add_option("--dim", options->dim, "a square product of this size")->check(size);
  command->add_option("--m", options->m, "rows of a and c")->check(size);
  command->add_option("--n", options->n, "columns of b and c")->check(size);
  command->add_option("--k", options->k, "columns of a, rows of b")->check(size);
  command->add_option("--model", options->model, "every product that this model runs");
  command
      ->add_option("--phase", options->phase,
                   "with --model: decode, prompt, train or all (default)")
      ->check(CLI::IsMember({"decode", "prompt", "train", "all"}));
  command->add_flag("--plain", options->plain, "b row by row, not a prepared weight");
  command->add_option("--runs", options->runs, "times default and best are compared (default 15)")
      ->check(CLI::Range(1, 100000));
  command->add_option("--budget", options->budget, "seconds a shape may take (default 8)")
      ->check(CLI::Range(0.01, 86400.0));
  command->callback([&globals, &action, options] {
    action = [&globals, options] { return tune_matmul(globals, *options); };
  });
}

}  // namespace

void add_tune(CLI::App& app, Globals& globals, Action& action) {
  CLI::App* tune = app.add_subcommand("tune", "fit the CPU's matrix products to this machine");
  tune->require_subcommand(1);
  add_matmul(*tune, globals, action);
  tune->add_subcommand("show", "what is tuned")->callback([&globals, &action] {
    action = [&globals] { return show(globals); };
  });
  tune->add_subcommand("clear", "forget it")->callback([&action] { action = clear; });
  auto file = std::make_shared<std::string>();
  CLI::App* exporting = tune->add_subcommand("export", "write it to a file");
  exporting->add_option("file", *file, "file to write")->required();
  exporting->callback([&action, file] { action = [file] { return export_to(*file); }; });
  CLI::App* importing = tune->add_subcommand("import", "add what such a file holds");
  importing->add_option("file", *file, "file of `volta tune export`")->required();
  importing->callback([&action, file] { action = [file] { return import_from(*file); }; });
}

}  // namespace volta::cli
