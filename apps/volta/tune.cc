// volta tune: finds the fastest parameters of matrix products on this CPU, and stores them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "command.h"
#include "device/cpu_device.h"
#include "device/device_kind.h"
#include "progress.h"
#include "train/presets.h"
#include "tune_report.h"
#include "tune_shapes.h"
#include "tuner/candidates.h"
#include "tuner/matmul_measure.h"
#include "tuner/search.h"
#include "tuner/tuning_cache.h"

namespace volta::cli {
namespace {

using tuner::TuningCache;
using tuner::TuningEntry;

struct TuneOptions {
  std::int64_t dim = 0, m = 0, n = 0, k = 0;
  std::string a_dtype;  ///< Empty: f32.
  bool plain = false, transpose_a = false, transpose_b = false;
  ModelWork work;
  int runs = 15;
  double budget = 8.0;
};

// Warns when threads share CPUs or exceed the quota: the measured times then include waiting.
void warn_of_scarce_cpus(int threads) {
  const auto quota = cgroup_cpu_quota();
  const double cpus = std::min<double>(usable_cpu_count(), quota.value_or(threads));
  if (cpus >= threads) return;
  note(
      fmt::format("volta: warning: {} share {:.4g} CPU{}{}: what is measured here may not "
                  "be what is fastest elsewhere\n",
                  counted(threads, "thread"), cpus, cpus == 1 ? "" : "s",
                  quota && *quota < threads ? " (the cgroup's quota)" : ""));
}

// Here "auto" means the CPU, whatever other devices there are.
Result<std::shared_ptr<CpuDevice>> open_cpu(const Globals& globals) {
  const bool flag = !globals.device.empty();
  const std::string_view word = flag ? globals.device : environment("VOLTA_DEVICE");
  const std::string_view source = flag ? "--device" : "VOLTA_DEVICE";
  VOLTA_TRY(const DeviceKind kind, DeviceKind::parse(word.empty() ? "cpu" : word, source));
  if (word != "auto" && kind != DeviceKind(DeviceKind::kCpu)) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} {}: tuning is for the CPU's kernels; use --device cpu", source, word));
  }
  return CpuDevice::create({.threads = globals.threads, .simd = {}});
}

// Checks that the options name exactly one thing to tune, and that all of them apply to it.
Status check_request(const Globals& globals, const TuneOptions& options) {
  const bool sizes = options.m > 0 || options.n > 0 || options.k > 0;
  const bool model = !options.work.model.empty() || !options.work.preset.empty();
  const int ways = (options.dim > 0 ? 1 : 0) + (sizes ? 1 : 0) +
                   (options.work.model.empty() ? 0 : 1) + (options.work.preset.empty() ? 0 : 1);
  if (ways == 1 && sizes && (options.m == 0 || options.n == 0 || options.k == 0)) {
    return fail(ErrorCode::kInvalidArgument, "--m, --n and --k go together");
  }
  if (ways != 1) {
    return fail(
        ErrorCode::kInvalidArgument,
        "say one thing to tune: --dim N, or --m M --n N --k K, or --model DIR, or --preset NAME");
  }
  const bool layout = options.plain || options.transpose_a || options.transpose_b;
  if (model && (layout || !options.a_dtype.empty())) {
    return fail(ErrorCode::kInvalidArgument,
                "--plain, --transpose-a, --transpose-b and --a-dtype go with --dim or --m --n --k");
  }
  const ModelWork& work = options.work;
  if (!model && (!work.phase.empty() || work.vocab > 0 || work.batch > 0 || work.tokens > 0)) {
    return fail(ErrorCode::kInvalidArgument,
                "--phase, --batch, --tokens and --vocab go with --model or --preset");
  }
  const bool trains = work.phase.empty() || work.phase == "all" || work.phase == "train";
  if (model && !trains && (work.batch > 0 || work.tokens > 0)) {
    return fail(ErrorCode::kInvalidArgument,
                "--batch and --tokens are those of training: drop them, or give --phase train");
  }
  return !model || work.phase == "train" ? refuse_unused(globals, "--weights") : Status();
}

Result<std::vector<ShapeToTune>> shapes_to_tune(const Globals& globals, const TuneOptions& options,
                                                CpuDevice& device) {
  VOLTA_TRY(check_request(globals, options));
  const ModelWork& work = options.work;
  if (!work.model.empty() || !work.preset.empty()) return shapes_of_model(globals, work, device);
  const bool layout = options.plain || options.transpose_a || options.transpose_b;
  VOLTA_TRY(const DType type, float_type(globals.dtype, "--dtype"));
  VOLTA_TRY(const DType a_type,
            float_type(options.a_dtype.empty() ? "f32" : options.a_dtype, "--a-dtype"));
  cpu::MatMulShape shape = {.a_type = a_type,
                            .b_type = type,
                            .packed = !layout,
                            .transpose_a = options.transpose_a,
                            .transpose_b = options.transpose_b,
                            .threads = device.threads(),
                            .m = options.m,
                            .n = options.n,
                            .k = options.k};
  if (options.dim > 0) shape.m = shape.n = shape.k = options.dim;
  return std::vector{ShapeToTune{.shape = shape}};
}

double gflops(double flops, double seconds) { return seconds > 0 ? flops / seconds * 1e-9 : 0; }

std::string describe(const std::string& name, const tuner::SearchProgress& search) {
  std::string text = fmt::format("{}  {} measured", name, search.measured);
  if (search.best_gain > 0) text += fmt::format(", {:.2f}x", search.best_gain);
  return text;
}

Result<TunedShape> tune_shape(const ShapeToTune& wanted, const std::string& name, cpu::Simd simd,
                              const TuneOptions& options) {
  const cpu::MatMulShape& shape = wanted.shape;
  const double started = monotonic_seconds();
  VOLTA_TRY(auto measure, tuner::MatMulMeasure::create(shape, simd, options.budget,
                                                       [] { return !interrupted(); }));
  const double left = options.budget - (monotonic_seconds() - started);
  const cpu::MatMulShape& measured = measure.shape();
  const auto grid = tuner::candidates(measured, simd, tuner::cpu_signature().caches);
  Progress progress;
  VOLTA_TRY(
      const tuner::SearchResult result,
      tuner::search(grid, cpu::default_parameters(simd, measured), measure,
                    {.budget_seconds = std::max(left, options.budget / 2), .runs = options.runs},
                    [&](const tuner::SearchProgress& search) {
                      progress.show([&] { return describe(name, search); }, search.part);
                      return !interrupted();
                    }));
  TunedShape tuned{{.simd = simd,
                    .shape = shape,
                    .parameters = result.chosen,
                    .default_gflops = gflops(measure.flops(), result.before.seconds),
                    .tuned_gflops = gflops(measure.flops(), result.after.seconds)},
                   result,
                   wanted.use};
  progress.print(result.default_kept
                     ? fmt::format("{}: the default is within noise of the best ({} tried)", name,
                                   result.tried)
                     : fmt::format("{}: {:.2f}x ({} tried)", name, result.gain, result.tried));
  return tuned;
}

/// Whether an error concerns this shape alone, such as one that does not fit the budget or the
/// memory. The other shapes are still tuned then.
bool concerns_shape(const Error& error) {
  return error.code() == ErrorCode::kInvalidArgument || error.code() == ErrorCode::kOutOfMemory;
}

// Entries for these shapes with default parameters. They need as much room in the file as the
// results of the search.
std::vector<TuningEntry> expected_entries(const std::vector<ShapeToTune>& shapes, cpu::Simd simd) {
  std::vector<TuningEntry> entries;
  for (const auto& [shape, use] : shapes) {
    entries.push_back(
        {.simd = simd, .shape = shape, .parameters = cpu::default_parameters(simd, shape)});
  }
  return entries;
}

Status print_report(const TuneReport& report, Output output) {
  switch (output) {
    case Output::kJson:
      return print(to_json(report));
    case Output::kCsv:
      return print(to_csv(report));
    default:
      return print(to_text(report));
  }
}

Status tune_matmul(const Globals& globals, const TuneOptions& options) {
  VOLTA_TRY(const Output output,
            parse_output(globals, {Output::kText, Output::kJson, Output::kCsv}));
  VOLTA_TRY(refuse_unused(globals, "--profile"));
  if (std::isnan(options.budget)) {
    return fail(ErrorCode::kInvalidArgument, "--budget nan: use seconds from 0.01 to 86400");
  }
  VOLTA_TRY(const auto device, open_cpu(globals));
  VOLTA_TRY(const auto shapes, shapes_to_tune(globals, options, *device));
  // Checked before the work: the results can be stored, and no other process measures.
  VOLTA_TRY(const TuningCache cache, TuningCache::open());
  auto alone = cache.lock_for_measuring(expected_entries(shapes, device->simd()));
  if (!alone) return std::unexpected(std::move(alone).error().with_context("cannot tune"));
  warn_of_scarce_cpus(device->threads());
  TuneReport report{.isa = cpu::simd_name(device->simd()),
                    .threads = device->threads(),
                    .file = cache.path(),
                    .shapes = {}};
  std::size_t number = 0;
  Status stored;
  for (const ShapeToTune& wanted : shapes) {
    const cpu::MatMulShape& shape = wanted.shape;
    const std::string name = fmt::format("[{}/{}] {}", ++number, shapes.size(), name_of(shape));
    auto tuned = tune_shape(wanted, name, device->simd(), options);
    const bool last = number == shapes.size() && report.shapes.empty();
    if (!tuned && !last && concerns_shape(tuned.error())) {
      note(fmt::format("{}: left out: {}\n", name, one_line(tuned.error().message())));
      continue;
    }
    if (!tuned && shapes.size() > 1) {
      return std::unexpected(std::move(tuned).error().with_context(
          fmt::format("{}, after {} of {} shapes, which are kept", name_of(shape),
                      report.shapes.size(), shapes.size())));
    }
    if (!tuned) return std::unexpected(std::move(tuned).error());
    stored = cache.add({&tuned->entry, 1});
    report.shapes.push_back(*std::move(tuned));
    if (!stored) break;  // Later results could not be stored either.
  }
  if (!stored) report.file.clear();
  VOLTA_TRY(print_report(report, output));
  if (stored) return {};
  return std::unexpected(std::move(stored).error().with_context(
      fmt::format("measured, but not kept: {}", name_of(report.shapes.back().entry.shape))));
}

Status show(const Globals& globals) {
  VOLTA_TRY(const Output output,
            parse_output(globals, {Output::kText, Output::kJson, Output::kCsv}));
  VOLTA_TRY(refuse_unused(globals, kNothingRuns));
  VOLTA_TRY(const TuningCache cache, TuningCache::open());
  VOLTA_TRY(const auto entries, cache.read());
  switch (output) {
    case Output::kJson:
      return print(tuner::tuning_to_json(entries, tuner::cpu_signature()));
    case Output::kCsv:
      return print(entries_to_csv(entries));
    default:
      return print(entries_to_text(entries, cache.path()));
  }
}

Status clear(const Globals& globals) {
  VOLTA_TRY(parse_output(globals, {Output::kText}));
  VOLTA_TRY(refuse_unused(globals, kNothingRuns));
  VOLTA_TRY(const TuningCache cache, TuningCache::open());
  VOLTA_TRY(const bool removed, cache.clear());
  return print(fmt::format("{}: {}\n", cache.path(), removed ? "removed" : "was not there"));
}

Status export_to(const Globals& globals, const std::string& file) {
  VOLTA_TRY(parse_output(globals, {Output::kText}));
  VOLTA_TRY(refuse_unused(globals, kNothingRuns));
  const bool to_output = file == kStandardStream;
  if (!to_output) VOLTA_TRY(check_result_file(globals, file, ""));
  VOLTA_TRY(const TuningCache cache, TuningCache::open());
  VOLTA_TRY(const auto entries, cache.read());
  if (entries.empty()) {
    return fail(ErrorCode::kNotFound, "nothing is tuned yet: `volta tune matmul` does it");
  }
  const std::string json = tuner::tuning_to_json(entries, tuner::cpu_signature());
  if (to_output) return print(json);
  VOLTA_TRY(make_folder_of(file, ""));
  VOLTA_TRY(write_file_atomic(file, json, existing_file(globals)));
  return print(fmt::format("{} written to {}\n", counted(std::ssize(entries), "shape"), file));
}

Status import_from(const Globals& globals, const std::string& file) {
  VOLTA_TRY(parse_output(globals, {Output::kText}));
  VOLTA_TRY(refuse_unused(globals, kNothingRuns));
  VOLTA_TRY(const TuningCache cache, TuningCache::open());
  VOLTA_TRY(const std::string text, read_input(file, tuner::kMostTuningBytes));
  VOLTA_TRY(const auto entries,
            tuner::parse_tuning(text, input_name(file), tuner::cpu_signature()));
  if (entries.empty()) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("'{}' holds no shape that these kernels can use", file));
  }
  VOLTA_TRY(cache.add(entries));
  return print(
      fmt::format("{} read, now in {}\n", counted(std::ssize(entries), "shape"), cache.path()));
}

void add_model_options(Command& command, ModelWork& work) {
  const auto count = range(std::int64_t{1}, std::int64_t{1} << 24);
  command.add_option("--model", work.model,
                     fmt::format("tune every product that this model runs: {}", kModelHelp));
  command.add_option("--preset", work.preset, "tune every product of a model of this preset")
      ->suggest(preset_names());
  command
      .add_option("--phase", work.phase,
                  "with --model or --preset: decode, prompt, train or all (default)")
      ->check(one_of({"decode", "prompt", "train", "all"}));
  command.add_option("--batch", work.batch, "sequences in training (default: the run's, or 4)")
      ->check(range(std::int64_t{1}, std::int64_t{65536}));
  command.add_option("--tokens", work.tokens, "of each of them (default: the run's, or 256)")
      ->check(count);
  command.add_option("--vocab", work.vocab, "with --preset: tokens of the text (default 256)")
      ->check(count);
}

void add_matmul(Command& tune, Globals& globals, Action& action) {
  Command* command = tune.add_subcommand("matmul", "find the best parameters of matrix products");
  auto options = std::make_shared<TuneOptions>();
  const auto size = range(std::int64_t{1}, tuner::kMostDim);
  command->add_option("--dim", options->dim, "a square product of this size")->check(size);
  command->add_option("--m", options->m, "rows of a and c")->check(size);
  command->add_option("--n", options->n, "columns of b and c")->check(size);
  command->add_option("--k", options->k, "columns of a, rows of b")->check(size);
  command->add_option("--a-dtype", options->a_dtype, "the type of a: f32 (default), bf16 or f16");
  command->add_flag("--plain", options->plain, "b row by row, not a prepared weight");
  command->add_flag("--transpose-a", options->transpose_a, "a as a[k, m], b plain");
  command->add_flag("--transpose-b", options->transpose_b, "b plain, as b[n, k]");
  add_model_options(*command, options->work);
  command->add_option("--runs", options->runs, "times default and best are compared (default 15)")
      ->check(range(1, 100000));
  command->add_option("--budget", options->budget, "seconds a shape may take (default 8)")
      ->check(range(0.01, 86400.0));
  command->callback([&globals, &action, options] {
    action = [&globals, options] { return tune_matmul(globals, *options); };
  });
}

}  // namespace

void add_tune(Command& app, Globals& globals, Action& action) {
  Command* tune = app.add_subcommand("tune", "fit the CPU's matrix products to this machine");
  tune->require_subcommand(1);
  add_matmul(*tune, globals, action);
  tune->add_subcommand("show", "what is tuned")->callback([&globals, &action] {
    action = [&globals] { return show(globals); };
  });
  tune->add_subcommand("clear", "forget it")->callback([&globals, &action] {
    action = [&globals] { return clear(globals); };
  });
  auto file = std::make_shared<std::string>();
  Command* exporting = tune->add_subcommand("export", "write it to a file");
  exporting->add_option("file", *file, "file to write, - for standard output")
      ->required()
      ->check(refuse_empty);
  exporting->add_flag("--force", globals.force, "replace the file");
  exporting->callback([&globals, &action, file] {
    action = [&globals, file] { return export_to(globals, *file); };
  });
  Command* importing = tune->add_subcommand("import", "add what such a file holds");
  importing->add_option("file", *file, "file of `volta tune export`, - for standard input")
      ->required();
  importing->callback([&globals, &action, file] {
    action = [&globals, file] { return import_from(globals, *file); };
  });
}

}  // namespace volta::cli
