// The file behind tuning_cache.h: its JSON, its lock, and what happens to a bad one.
#include "tuner/tuning_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>
#include <utility>

#include "base/arithmetic.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/json.h"
#include "base/log.h"
#include "base/parallel.h"
#include "tuner/kernels_hash.h"

namespace volta::tuner {
namespace {

constexpr std::string_view kFormat = "volta-matmul-tuning";
constexpr std::int64_t kVersion = 3;
constexpr double kLockSeconds = 5.0;
constexpr std::chrono::milliseconds kLockPause(10);
constexpr double kMostGflops = 1e9;  // Far beyond every speed that will exist.

constexpr std::array kTypes = {DType::kF32, DType::kBF16, DType::kF16};
constexpr std::array kPrefetches = {cpu::Prefetch::kAhead, cpu::Prefetch::kNextBlock};

void write_signature(JsonWriter& json, const CpuSignature& s) {
  json.begin_object().field("vendor", s.vendor).field("family", s.family).field("model", s.model);
  json.field("stepping", s.stepping).field("l1d_bytes", s.caches.l1d);
  json.field("l2_bytes", s.caches.l2).field("l3_bytes", s.caches.l3).field("isa", s.isa);
  json.end_object();
}

void write_entry(JsonWriter& json, const TuningEntry& e) {
  json.begin_object().field("isa", cpu::simd_name(e.simd));
  write_shape(json, e.shape);
  write_parameters(json, e.parameters);
  json.field("default_gflops", e.default_gflops);
  json.field("tuned_gflops", e.tuned_gflops).end_object();
}

// The element of `all` whose name, as given by `name`, is in the object.
template <typename T, std::size_t N, typename Name>
Result<T> one_of(const JsonRef& object, std::string_view key, const std::array<T, N>& all,
                 const Name& name) {
  VOLTA_TRY(const std::string word, object.get_string(key));
  for (const T& value : all) {
    if (word == name(value)) return value;
  }
  // The message leaves out the word itself, which may be anything and would go to a terminal.
  std::string known;
  for (const T& value : all) known += fmt::format("{}{}", known.empty() ? "" : ", ", name(value));
  return fail(ErrorCode::kInvalidFile,
              fmt::format("{}: {}: is none of {}", object.path(), key, known));
}

Result<CpuSignature> read_signature(const JsonRef& object) {
  constexpr std::int64_t kMostField = 1 << 20;
  CpuSignature s;
  VOLTA_TRY(s.vendor, object.get_string("vendor"));
  VOLTA_TRY(s.isa, object.get_string("isa"));
  VOLTA_TRY(const std::int64_t family, object.get_int("family", 0, kMostField));
  VOLTA_TRY(const std::int64_t model, object.get_int("model", 0, kMostField));
  VOLTA_TRY(const std::int64_t stepping, object.get_int("stepping", 0, kMostField));
  s.family = static_cast<int>(family);
  s.model = static_cast<int>(model);
  s.stepping = static_cast<int>(stepping);
  VOLTA_TRY(s.caches.l1d, object.get_int("l1d_bytes", 0, kMaxPlausibleCount));
  VOLTA_TRY(s.caches.l2, object.get_int("l2_bytes", 0, kMaxPlausibleCount));
  VOLTA_TRY(s.caches.l3, object.get_int("l3_bytes", 0, kMaxPlausibleCount));
  return s;
}

Result<cpu::MatMulParameters> read_parameters(const JsonRef& object) {
  const auto get = [&](std::string_view key) -> Result<std::int32_t> {
    VOLTA_TRY(const std::int64_t value, object.get_int(key, 0, std::int64_t{1} << 30));
    return static_cast<std::int32_t>(value);
  };
  cpu::MatMulParameters p;
  VOLTA_TRY(p.k_block, get("k_block"));
  VOLTA_TRY(p.m_block, get("m_block"));
  VOLTA_TRY(p.n_block, get("n_block"));
  VOLTA_TRY(p.tile.rows, get("tile_rows"));
  VOLTA_TRY(p.tile.columns, get("tile_columns"));
  VOLTA_TRY(p.prefetch, one_of(object, "prefetch", kPrefetches, cpu::prefetch_name));
  VOLTA_TRY(p.prefetch_bytes, get("prefetch_bytes"));
  return p;
}

Result<TuningEntry> read_entry(const JsonRef& object) {
  TuningEntry e;
  VOLTA_TRY(e.simd, one_of(object, "isa", cpu::kAllSimd, cpu::simd_name));
  VOLTA_TRY(e.shape.a_type, one_of(object, "a_dtype", kTypes, dtype_name));
  VOLTA_TRY(e.shape.b_type, one_of(object, "dtype", kTypes, dtype_name));
  VOLTA_TRY(e.shape.packed, object.get_bool("packed"));
  VOLTA_TRY(e.shape.transpose_a, object.get_bool("transpose_a"));
  VOLTA_TRY(e.shape.transpose_b, object.get_bool("transpose_b"));
  if (e.shape.packed && (e.shape.transpose_a || e.shape.transpose_b)) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: panels are not transposed, nor is what they meet", object.path()));
  }
  VOLTA_TRY(const std::int64_t threads, object.get_int("threads", 1, kMaxThreads));
  e.shape.threads = static_cast<std::int32_t>(threads);
  VOLTA_TRY(e.shape.m, object.get_int("m", 1, kMaxPlausibleCount));
  VOLTA_TRY(e.shape.n, object.get_int("n", 1, kMaxPlausibleCount));
  VOLTA_TRY(e.shape.k, object.get_int("k", 1, kMaxPlausibleCount));
  VOLTA_TRY(e.default_gflops, object.get_float("default_gflops", 0, kMostGflops));
  VOLTA_TRY(e.tuned_gflops, object.get_float("tuned_gflops", 0, kMostGflops));
  VOLTA_TRY(const JsonRef parameters, object.member("parameters"));
  VOLTA_TRY(e.parameters, read_parameters(parameters));
  return e;
}

// Whether a file with this error is useless, rather than just not readable at the moment.
bool is_bad(const Error& error) {
  return error.code() == ErrorCode::kInvalidFile || error.code() == ErrorCode::kUnsupported;
}

// Whether one of the entries replaces the other.
bool same_place(const TuningEntry& x, const TuningEntry& y) {
  return x.simd == y.simd && same_choice(x.shape, y.shape);
}

Status merge(std::vector<TuningEntry>& entries, std::span<const TuningEntry> more) {
  for (const TuningEntry& entry : more) {
    const auto at = std::ranges::find_if(
        entries, [&](const TuningEntry& known) { return same_place(known, entry); });
    if (at != entries.end()) {
      *at = entry;
    } else {
      entries.push_back(entry);
    }
  }
  if (std::ssize(entries) <= kMostTuningEntries) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("a tuning file holds {} shapes at most: `volta tune clear` removes them",
                          kMostTuningEntries));
}

}  // namespace

bool same_choice(const cpu::MatMulShape& a, const cpu::MatMulShape& b) {
  cpu::MatMulShape x = a, y = b;
  x.m = cpu::row_class(x.m);
  y.m = cpu::row_class(y.m);
  return x == y;
}

void write_shape(JsonWriter& json, const cpu::MatMulShape& s) {
  json.field("threads", s.threads).field("a_dtype", dtype_name(s.a_type));
  json.field("dtype", dtype_name(s.b_type)).field("packed", s.packed);
  json.field("transpose_a", s.transpose_a).field("transpose_b", s.transpose_b);
  json.field("m", s.m).field("n", s.n).field("k", s.k);
}

void write_parameters(JsonWriter& json, const cpu::MatMulParameters& p) {
  json.key("parameters").begin_object().field("k_block", p.k_block).field("m_block", p.m_block);
  json.field("n_block", p.n_block).field("tile_rows", p.tile.rows);
  json.field("tile_columns", p.tile.columns).field("prefetch", cpu::prefetch_name(p.prefetch));
  json.field("prefetch_bytes", p.prefetch_bytes).end_object();
}

std::string tuning_to_json(std::span<const TuningEntry> entries, const CpuSignature& signature) {
  JsonWriter json(1);
  json.begin_object().field("format", kFormat).field("version", kVersion);
  json.field("kernels", kernels_hash()).key("cpu");
  write_signature(json, signature);
  json.key("entries").begin_array();
  for (const TuningEntry& entry : entries) write_entry(json, entry);
  json.end_array().end_object();
  return std::move(json).take() + "\n";
}

Result<std::vector<TuningEntry>> parse_tuning(std::string_view text, std::string_view what,
                                              const CpuSignature& signature) {
  VOLTA_TRY(const JsonValue json,
            parse_json(text, what,
                       {.max_bytes = kMostTuningBytes, .max_values = 1 << 17, .max_depth = 8}));
  const JsonRef root(json, what);
  VOLTA_TRY(const std::string format, root.get_string("format"));
  if (format != kFormat) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: this is no file of the tuner's", what));
  }
  VOLTA_TRY(const std::int64_t version, root.get_int("version"));
  if (version != kVersion) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: has version {}, this program writes {}", what, version, kVersion));
  }
  VOLTA_TRY(const JsonRef cpu, root.member("cpu"));
  VOLTA_TRY(const CpuSignature made_for, read_signature(cpu));
  if (made_for != signature) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: was measured on another CPU ({}, this one is {})", what,
                            to_string(made_for), to_string(signature)));
  }
  VOLTA_TRY(const std::string kernels, root.get_string("kernels"));
  if (kernels != kernels_hash()) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: was measured with the kernels of another version", what));
  }
  VOLTA_TRY(const JsonRef list, root.member("entries"));
  VOLTA_TRY(const std::vector<JsonRef> elements, list.elements());
  if (std::ssize(elements) > kMostTuningEntries) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: has {} entries, {} is the most", what,
                                                     elements.size(), kMostTuningEntries));
  }
  std::vector<TuningEntry> entries;
  entries.reserve(elements.size());
  for (const JsonRef& element : elements) {
    VOLTA_TRY(const TuningEntry entry, read_entry(element));
    if (cpu::valid_parameters(entry.parameters, entry.simd)) entries.push_back(entry);
  }
  if (entries.size() < elements.size()) {
    log(LogLevel::kWarning, fmt::format("{}: {} of {} entries have parameters that no kernel takes",
                                        what, elements.size() - entries.size(), elements.size()));
  }
  return entries;
}

TuningCache::TuningCache(std::string directory, CpuSignature signature)
    : directory_(std::move(directory)), signature_(std::move(signature)) {}

Result<TuningCache> TuningCache::open() {
  constexpr std::string_view kFolder = "matmul_tuning";
  if (const auto cache = environment("VOLTA_CACHE_DIR"); !cache.empty()) {
    return TuningCache(join_path(cache, kFolder), cpu_signature());
  }
  const std::string_view home = environment("HOME");
  if (home.empty()) {
    return fail(ErrorCode::kIo,
                "there is no place for tuning results: set VOLTA_CACHE_DIR to a folder, or HOME");
  }
  return TuningCache(join_path(join_path(home, ".volta"), kFolder), cpu_signature());
}

std::string TuningCache::path() const {
  return join_path(directory_, fmt::format("{}-{}.json", to_string(signature_), kernels_hash()));
}

Result<std::vector<TuningEntry>> TuningCache::read() const {
  const std::string file = path();
  VOLTA_TRY(const auto text, read_text_file_if_there(file, kMostTuningBytes));
  if (!text) return std::vector<TuningEntry>();
  return parse_tuning(*text, file, signature_);
}

std::vector<TuningEntry> TuningCache::read_or_warn() const {
  auto entries = read();
  if (entries) return *std::move(entries);
  const bool removable = is_bad(entries.error()) && !is_directory(path());
  log(LogLevel::kWarning,
      fmt::format("{}; products run with default parameters{}", entries.error().message(),
                  removable ? ": `volta tune clear` removes the file" : ""));
  return {};
}

// The caller must hold the lock.
std::vector<TuningEntry> TuningCache::set_aside() const {
  auto entries = read();
  if (entries) return *std::move(entries);
  const auto bad = volta::set_aside(path(), ".bad");  // Keeps earlier ones.
  log(LogLevel::kWarning,
      fmt::format("{}; {}: tune again with `volta tune matmul`", entries.error().message(),
                  bad ? fmt::format("set aside as {}", *bad) : bad.error().message()));
  return {};
}

// DirectoryLock does not wait, but a writer holds this lock only for milliseconds.
Result<DirectoryLock> TuningCache::lock() const {
  const double until = monotonic_seconds() + kLockSeconds;
  for (;;) {
    Result<DirectoryLock> lock = DirectoryLock::acquire(directory_);
    if (lock || monotonic_seconds() > until) return lock;
    // Waiting helps only if another process holds the lock.
    if (lock.error().code() != ErrorCode::kIo) return lock;
    if (::access(join_path(directory_, kLockFile).c_str(), W_OK) != 0) return lock;
    std::this_thread::sleep_for(kLockPause);
  }
}

// The caller must hold the lock.
Result<std::string> TuningCache::text_with(std::span<const TuningEntry> entries) const {
  auto known = read();
  if (!known && !is_bad(known.error())) return std::unexpected(std::move(known).error());
  std::vector<TuningEntry> all = known ? *std::move(known) : set_aside();
  VOLTA_TRY(merge(all, entries));
  return tuning_to_json(all, signature_);
}

Status TuningCache::add(std::span<const TuningEntry> entries) const {
  VOLTA_TRY(create_directories(directory_));
  VOLTA_TRY(const DirectoryLock locked, lock());
  VOLTA_TRY(const std::string text, text_with(entries));
  return write_file_atomic(path(), text);
}

// Does everything that add() does except the last step, renaming the file.
Status TuningCache::try_add(std::span<const TuningEntry> entries) const {
  VOLTA_TRY(const DirectoryLock locked, lock());
  VOLTA_TRY(const std::string text, text_with(entries));
  VOLTA_TRY(FileWriter trial, FileWriter::open_temporary(path()));
  Status written = trial.write(text);
  if (written) written = trial.sync();
  const Status removed = remove_all(trial.path());
  return written ? removed : written;
}

Result<bool> TuningCache::clear() const {
  const auto size = file_size(path());
  if (!size && !is_link(path())) {  // A link is removed whatever it leads to.
    if (size.error().code() == ErrorCode::kNotFound) return false;
    // The folder may not be searched, or its path is a loop of links: we cannot tell what is there.
    if (!path_exists(path())) return fail(ErrorCode::kIo, std::string(size.error().message()));
    return fail(ErrorCode::kInvalidFile,
                fmt::format("'{}' is not a file, so Volta did not make it: move it away, or remove "
                            "it yourself",
                            path()));
  }
  VOLTA_TRY(const DirectoryLock locked, lock());
  VOLTA_TRY(remove_all(path()));
  return true;
}

Result<DirectoryLock> TuningCache::lock_for_measuring(std::span<const TuningEntry> expected) const {
  const std::string folder = join_path(directory_, "measuring");
  VOLTA_TRY(create_directories(folder));
  VOLTA_TRY(DirectoryLock alone, DirectoryLock::acquire(folder));
  VOLTA_TRY(try_add(expected));
  return alone;
}

cpu::MatMulTuning to_tuning(std::span<const TuningEntry> entries, cpu::Simd simd) {
  cpu::MatMulTuning tuning;
  for (const TuningEntry& entry : entries) {
    if (entry.simd != simd) continue;
    const bool is_default = entry.parameters == cpu::default_parameters(simd, entry.shape);
    tuning.set(entry.shape, is_default ? std::nullopt : std::optional(entry.parameters));
  }
  return tuning;
}

}  // namespace volta::tuner
