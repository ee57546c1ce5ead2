#include "io/model_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/function_ref.h"
#include "base/json.h"
#include "io/adapter.h"
#include "io/carried_files.h"
#include "io/chat_template.h"
#include "io/generation_config.h"
#include "io/gguf/gguf_file.h"
#include "io/gguf/gguf_model.h"
#include "io/model_config.h"
#include "io/non_finite.h"
#include "io/safetensors.h"
#include "io/tensor_names.h"
#include "io/tokenizer.h"
#include "io/weight_files.h"

namespace volta {
namespace {

constexpr std::int64_t kMaxAdapterConfigBytes = std::int64_t{16} << 20;
constexpr std::int64_t kPieceBytes = std::int64_t{32} << 20;  // Read between two looks at go_on.

// One folder's check while it goes on.
class Check {
 public:
  Check(std::string directory, ThreadPool& pool, const CheckCallback& go_on)
      : directory_(std::move(directory)), pool_(pool), go_on_(go_on) {}

  Result<ModelCheck> run() {
    auto checked = run_all();
    if (out_of_memory_) return std::unexpected(*std::move(out_of_memory_));
    return checked;
  }

 private:
  Result<ModelCheck> run_all() {
    if (is_gguf_path(directory_)) return run_gguf();
    if (is_adapter()) return run_adapter();
    auto config = load_model_config(directory_);
    if (config) {
      config_ = *std::move(config);
    } else {
      invalid("config.json", config.error());
    }
    open_weights();
    if (config_ && complete_) check_structure();
    for (const SafetensorsFile& file : files_) expect_values(file);
    VOLTA_TRY(check_all_values());
    return finish();
  }
  Result<ModelCheck> finish() {
    VOLTA_TRY(check_tokenizer());
    check_generation_config();
    check_chat_template();
    check_carried_files();
    return std::move(out_);
  }
  void add(Finding::Kind kind, std::string where, std::string what) {
    if (is_gguf_path(directory_)) where = file_name(directory_);  // All is in one file.
    out_.findings.push_back({kind, std::move(where), std::move(what)});
  }
  void invalid(std::string where, std::string what) {
    add(Finding::Kind::kInvalid, std::move(where), std::move(what));
  }
  // A lack of memory says nothing about the model.
  void invalid(std::string where, const Error& error) {
    if (error.code() == ErrorCode::kOutOfMemory) {
      out_of_memory_ = error;
    } else {
      invalid(std::move(where), std::string(error.message()));
    }
  }
  void contradiction(std::string where, std::string what) {
    add(Finding::Kind::kContradiction, std::move(where), std::move(what));
  }

  bool is_adapter() const;
  Result<ModelCheck> run_adapter();
  void open_weights();
  void open_one_by_one(const Error& first_error);
  Result<ModelCheck> run_gguf();
  Status check_values(const GgufFile& file);
  void check_structure();
  void check_entry(const TensorNames& names, const SafetensorsFile& file,
                   const SafetensorsEntry& entry);
  bool misfits(const SafetensorsEntry& entry) const;
  Status ask() const;
  template <typename File>
  Status in_pieces(const File& file, std::int64_t size, std::int64_t unit,
                   FunctionRef<void(std::int64_t begin, std::int64_t length)> look);
  void expect_values(const SafetensorsFile& file);
  Status check_all_values();
  Status check_values(const SafetensorsFile& file);
  Status check_values(const SafetensorsFile& file, const SafetensorsEntry& entry);
  void report(const std::string& where, const std::string& tensor, const NonFinite& found,
              std::string_view values, std::string_view element);
  void check_filler(const std::string& where, const SafetensorsEntry& entry,
                    std::span<const std::byte> bytes);
  Status check_tied_output(const SafetensorsFile& file, const SafetensorsEntry& entry);
  Status check_tokenizer();
  void check_carried_files();
  std::optional<LoraConfig> check_adapter_config(std::string& base);
  void check_generation_config();
  void check_token(std::string_view key, std::int32_t id);
  void check_chat_template();

  // A tensor that a parameter is read from.
  struct Source {
    const SafetensorsFile* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
  };

  std::string directory_;
  ThreadPool& pool_;
  const CheckCallback& go_on_;
  ModelCheck out_;
  std::optional<TransformerConfig> config_;
  std::vector<SafetensorsFile> files_;
  bool complete_ = false;                      // All files of the weights could be opened.
  std::map<std::string, Source> sources_;      // By parameter.
  std::set<const SafetensorsEntry*> misfits_;  // Told, and of no use.
  std::optional<Error> out_of_memory_;
  std::int64_t expected_ = 0;  // Bytes that will be looked at.
};

void Check::open_weights() {
  auto files = open_weight_files(directory_);
  complete_ = files.has_value();
  if (files) {
    files_ = *std::move(files);
  } else {
    open_one_by_one(files.error());
  }
}

// Opening stopped at the first bad file. Opens each one again to report every problem and to check
// the rest.
void Check::open_one_by_one(const Error& first_error) {
  bool told = false;
  const auto names = list_directory(directory_);
  for (const std::string& name : names ? *names : std::vector<std::string>()) {
    if (!name.starts_with("model") || !name.ends_with(".safetensors")) continue;
    auto file = SafetensorsFile::open(join_path(directory_, name));
    if (file) {
      files_.push_back(*std::move(file));
    } else {
      told = told || file.error().message() == first_error.message();
      invalid(name, file.error());
    }
  }
  if (!told) invalid("model.safetensors", first_error);
}

void Check::check_structure() {
  const TensorNames names(*config_);
  const std::size_t before = out_.findings.size();
  for (const SafetensorsFile& file : files_) {
    for (const SafetensorsEntry& entry : file.entries()) check_entry(names, file, entry);
  }
  for (const ParameterInfo& info : parameters(*config_)) {
    const auto found = sources_.find(info.name);
    if (found == sources_.end()) {
      invalid(file_name(files_.front().path()),
              fmt::format("tensor '{}' {} is missing", info.name, to_string(info.shape)));
      continue;
    }
    const TensorSpec& spec = found->second.entry->spec;
    if (spec.shape == info.shape && is_float(spec.dtype)) continue;
    // Small integers lie in bytes; loading knows their sizes.
    const std::string quantized = quant_key(found->second.entry->name);
    if (found->second.file->metadata().contains(quantized)) continue;
    misfits_.insert(found->second.entry);
    invalid(file_name(found->second.file->path()),
            fmt::format("tensor '{}' is {}; the config asks for a float tensor {}",
                        found->second.entry->name, to_string(spec), to_string(info.shape)));
  }
  if (out_.findings.size() > before) return;
  // What loading would refuse beyond that: a model that is called good can be loaded.
  const auto loadable = WeightFiles::find(files_, *config_);
  if (!loadable) invalid(file_name(files_.front().path()), loadable.error());
}

void Check::check_entry(const TensorNames& names, const SafetensorsFile& file,
                        const SafetensorsEntry& entry) {
  const std::string where = file_name(file.path());
  const std::string full = names.full(entry.name);
  if (names.filler(full, entry.spec.shape)) return check_filler(where, entry, file.bytes(entry));
  if (!names.ignored(full) && !names.wanted(full)) {
    misfits_.insert(&entry);
    return invalid(where, fmt::format("tensor '{}' {} belongs to no parameter of this architecture",
                                      entry.name, to_string(entry.spec)));
  }
  const bool first = sources_.emplace(full, Source{&file, &entry}).second;
  if (!first) invalid(where, fmt::format("tensor '{}' is there twice", full));
}

Status Check::ask() const {
  if (!go_on_ || go_on_(out_.bytes, expected_)) return {};
  return fail(ErrorCode::kInterrupted,
              fmt::format("interrupted after {} bytes of weights", out_.bytes));
}

// Walks over `size` bytes of a mapped file in pieces of whole units, and counts them. kInvalidFile
// after the first piece that was read while the file changed.
template <typename File>
Status Check::in_pieces(const File& file, std::int64_t size, std::int64_t unit,
                        FunctionRef<void(std::int64_t begin, std::int64_t length)> look) {
  const std::int64_t piece = std::max<std::int64_t>(kPieceBytes / unit, 1) * unit;
  for (std::int64_t begin = 0; begin < size; begin += piece) {
    VOLTA_TRY(ask());
    const std::int64_t length = std::min(piece, size - begin);
    look(begin, length);
    VOLTA_TRY(file.check_unchanged());
    out_.bytes += length;
  }
  return {};
}

bool Check::misfits(const SafetensorsEntry& entry) const { return misfits_.contains(&entry); }

void Check::expect_values(const SafetensorsFile& file) {
  for (const SafetensorsEntry& entry : file.entries()) {
    if (!misfits(entry)) expected_ += entry.spec.bytes();
  }
}

// The rest of a file that changes meanwhile is not read: it belongs to neither the old content nor
// the new.
Status Check::check_all_values() {
  std::vector<const SafetensorsFile*> whole;
  for (const SafetensorsFile& file : files_) {
    Status done = check_values(file);
    const bool changed = !done && done.error().code() == ErrorCode::kInvalidFile;
    if (!done && !changed) return done;
    if (changed) invalid(file_name(file.path()), done.error());
    if (!changed) whole.push_back(&file);
  }
  for (const SafetensorsFile* file : whole) {  // Those that changed while others were read.
    const Status unchanged = file->check_unchanged();
    if (!unchanged) invalid(file_name(file->path()), unchanged.error());
  }
  return {};
}

Status Check::check_values(const SafetensorsFile& file) {
  out_.weight_files.push_back(file_name(file.path()));
  for (const SafetensorsEntry& entry : file.entries()) {
    ++out_.tensors;
    if (misfits(entry)) continue;
    VOLTA_TRY(check_values(file, entry));
    file.release(entry.name);
    if (entry.name == "lm_head.weight") VOLTA_TRY(check_tied_output(file, entry));
  }
  return {};
}

void Check::report(const std::string& where, const std::string& tensor, const NonFinite& found,
                   std::string_view values, std::string_view element) {
  if (found.first < 0) return;
  invalid(where, fmt::format("tensor {} has {} NaN and {} infinite {}, the first at {} {}", tensor,
                             found.nans, found.infinities, values, element, found.first));
}

Status Check::check_values(const SafetensorsFile& file, const SafetensorsEntry& entry) {
  const auto bytes = file.bytes(entry);
  const auto encoding = stored_encoding(file, entry.name);  // What is wrong with it is told apart.
  const bool integers = encoding && encoding->quantized();
  const std::int64_t unit =
      integers ? encoding->block_bytes() : std::max<std::int64_t>(dtype_size(entry.spec.dtype), 1);
  NonFinite found;
  VOLTA_TRY(in_pieces(file, entry.spec.bytes(), unit, [&](std::int64_t begin, std::int64_t length) {
    const auto piece =
        bytes.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(length));
    found.add(integers ? count_non_finite_scales(piece, *encoding)
                       : count_non_finite(piece, entry.spec.dtype, pool_),
              begin / unit);
    file.release(entry.name);
  }));
  report(file_name(file.path()), fmt::format("'{}' {}", entry.name, to_string(entry.spec)), found,
         integers ? "scales" : "values", integers ? "block" : "element");
  return {};
}

void Check::check_filler(const std::string& where, const SafetensorsEntry& entry,
                         std::span<const std::byte> bytes) {
  const bool zero = std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
  if (zero) return;
  invalid(where, fmt::format("tensor '{}' {} is a bias that this architecture has not, and it is "
                             "not zero",
                             entry.name, to_string(entry.spec)));
}

// A copy of the embedding that is none would be left out without a word.
Status Check::check_tied_output(const SafetensorsFile& file, const SafetensorsEntry& entry) {
  if (!config_ || !config_->tied_output) return {};
  const auto embedding = std::ranges::find_if(sources_, [](const auto& source) {
    return source.first == "transformer.wte.weight" || source.first == "model.embed_tokens.weight";
  });
  if (embedding == sources_.end()) return {};
  const Source& other = embedding->second;
  bool same = entry.spec == other.entry->spec;
  if (same) {
    const auto a = file.bytes(entry), b = other.file->bytes(*other.entry);
    expected_ += entry.spec.bytes();
    VOLTA_TRY(in_pieces(file, entry.spec.bytes(), 1, [&](std::int64_t begin, std::int64_t length) {
      const auto from = static_cast<std::size_t>(begin), count = static_cast<std::size_t>(length);
      same = same && std::ranges::equal(a.subspan(from, count), b.subspan(from, count));
    }));
  }
  if (same) return {};
  contradiction(file_name(file.path()),
                fmt::format("the config ties the output to the embedding, but '{}' differs from "
                            "'{}'; is tie_word_embeddings right?",
                            entry.name, other.entry->name));
  return {};
}

Result<ModelCheck> Check::run_gguf() {
  const std::string where = file_name(directory_);
  out_.weight_files.push_back(where);
  const auto file = GgufFile::open(directory_);
  if (!file) {
    if (file.error().code() == ErrorCode::kNotFound) return std::unexpected(file.error());
    invalid(where, file.error());
    return std::move(out_);  // Nothing else can be read.
  }
  if (auto config = gguf_config(*file)) {
    config_ = *std::move(config);
    const auto parameters = find_gguf_parameters(*config_, *file);
    if (!parameters) invalid(where, parameters.error());
  } else {
    invalid(where, config.error());
  }
  if (Status done = check_values(*file); !done) {
    if (done.error().code() != ErrorCode::kInvalidFile) return std::unexpected(done.error());
    invalid(where, done.error());
    return std::move(out_);  // What follows would read another file.
  }
  return finish();
}

Status Check::check_values(const GgufFile& file) {
  for (const GgufTensor& tensor : file.tensors()) expected_ += tensor.bytes;
  for (const GgufTensor& tensor : file.tensors()) {
    const GgmlTypeInfo& info = ggml_type_info(tensor.type);
    NonFinite found;
    VOLTA_TRY(in_pieces(file, tensor.bytes, 4096 * info.block_bytes,
                        [&](std::int64_t begin, std::int64_t length) {
                          const std::int64_t first = begin / info.block_bytes * info.block_values;
                          const std::int64_t values = length / info.block_bytes * info.block_values;
                          const auto read = [&](std::int64_t at, std::span<float> into) {
                            file.read_values(tensor, first + at, into);
                          };
                          found.add(count_non_finite(values, pool_, read), first);
                          file.release(tensor);
                        }));
    ++out_.tensors;
    report(file_name(directory_),
           fmt::format("'{}' {}{}", tensor.name, info.name, to_string(tensor.shape)), found,
           "values", "element");
  }
  return file.check_unchanged();
}

Status Check::check_tokenizer() {
  const auto interrupted = [this] { return !ask(); };
  const auto tokenizer = load_tokenizer(directory_, interrupted);
  if (!tokenizer && tokenizer.error().code() == ErrorCode::kNotFound) return {};
  const Status works = tokenizer ? try_tokenizer(**tokenizer) : std::unexpected(tokenizer.error());
  if (!works && works.error().code() == ErrorCode::kInterrupted) return works;
  if (!works) invalid("tokenizer.json", works.error());
  if (!tokenizer) return {};
  out_.has_tokenizer = true;
  const std::int64_t vocab = (*tokenizer)->vocab_size();
  if (!config_ || vocab <= config_->vocab_size) return {};
  contradiction("tokenizer.json",
                fmt::format("it has ids up to {}, the model's vocabulary ids 0 to {}", vocab - 1,
                            config_->vocab_size - 1));
  return {};
}

void Check::check_generation_config() {
  const std::string where = "generation_config.json";
  // Ids beyond the vocabulary are told as contradictions below.
  constexpr std::int64_t kAnyId = std::numeric_limits<std::int64_t>::max();
  const auto config = load_generation_config(directory_, kAnyId);
  if (config) {
    if (config->begin_token) check_token("bos_token_id", *config->begin_token);
    for (const std::int32_t id : config->end_tokens) check_token("eos_token_id", id);
    return;
  }
  const bool own = config.error().message().find(where) != std::string::npos;
  if (own || config_) invalid(own ? where : "config.json", config.error());  // A bad one is told.
}

void Check::check_token(std::string_view key, std::int32_t id) {
  if (!config_ || id < config_->vocab_size) return;
  const bool own = path_exists(join_path(directory_, "generation_config.json"));
  contradiction(own ? "generation_config.json" : "config.json",
                fmt::format("{} is {}; the model's vocabulary has ids 0 to {}", key, id,
                            config_->vocab_size - 1));
}

void Check::check_chat_template() {
  const auto parsed = ChatTemplate::load(directory_);
  if (parsed || parsed.error().code() == ErrorCode::kNotFound) return;
  const std::string own = "chat_template.jinja";
  invalid(path_exists(join_path(directory_, own)) ? own : "tokenizer_config.json", parsed.error());
}

// The files that are copied into models made of this one, which must not lead out of the folder.
void Check::check_carried_files() {
  if (is_gguf_path(directory_)) return;
  const auto names = carried_file_names();
  std::vector<std::string_view> all(names.begin(), names.end());
  all.emplace_back("config.json");
  for (const std::string_view name : all) {
    const auto text = read_carried_file(directory_, name);
    const bool told =
        std::ranges::find(out_.findings, name, &Finding::where) != out_.findings.end();
    if (text || told) continue;
    if (text.error().code() == ErrorCode::kOutOfMemory) {
      out_of_memory_ = text.error();
      return;
    }
    invalid(std::string(name),
            fmt::format("{} (quantize, merge, convert and train --init copy it, and refuse it)",
                        text.error().message()));
  }
}

bool Check::is_adapter() const {
  return !path_exists(join_path(directory_, "config.json")) &&
         path_exists(join_path(directory_, kAdapterConfigFile));
}

// Its settings, and the base model that they name; nothing when they cannot be used.
std::optional<LoraConfig> Check::check_adapter_config(std::string& base) {
  const std::string where(kAdapterConfigFile);
  const std::string path = join_path(directory_, where);
  const auto text = read_text_file(path, kMaxAdapterConfigBytes);
  if (!text) {
    invalid(where, text.error());
    return std::nullopt;
  }
  auto lora = parse_adapter_config(*text, path);
  if (!lora) {
    invalid(where, lora.error());
    return std::nullopt;
  }
  auto name = adapter_base_name(directory_);
  if (!name) {
    invalid(where, name.error());
    return std::nullopt;
  }
  base = *std::move(name);
  return *std::move(lora);
}

Result<ModelCheck> Check::run_adapter() {
  out_.adapter = true;
  std::string base;
  const auto lora = check_adapter_config(base);
  const std::string weights(kAdapterWeightsFile);
  if (auto file = SafetensorsFile::open(join_path(directory_, weights))) {
    expect_values(*file);
    files_.push_back(*std::move(file));
    if (lora) {
      for (std::string& flaw : find_adapter_flaws(*lora, files_.front())) {
        invalid(weights, std::move(flaw));
      }
    }
    VOLTA_TRY(check_all_values());
  } else {
    invalid(weights, file.error());
  }
  if (!out_.findings.empty() || base.empty()) return std::move(out_);
  // A name of a hub, or a folder of another machine, says nothing here.
  const auto config = load_model_config(base);
  if (!config) return std::move(out_);
  const auto adapter = load_adapter(directory_, *config);
  if (!adapter) invalid(weights, adapter.error());
  return std::move(out_);
}

}  // namespace

std::string_view finding_name(Finding::Kind kind) {
  return kind == Finding::Kind::kInvalid ? "invalid" : "contradiction";
}

Result<ModelCheck> check_model(const std::string& model, ThreadPool& pool,
                               const CheckCallback& go_on) {
  if (!is_gguf_path(model) && !is_directory(model)) {
    if (path_exists(model)) {
      return fail(
          ErrorCode::kInvalidFile,
          fmt::format("'{}' is a file: name the folder that it lies in, or a .gguf file", model));
    }
    return fail(ErrorCode::kNotFound, fmt::format("no model folder at '{}'", model));
  }
  return Check(model, pool, go_on).run();
}

}  // namespace volta
