#include "io/model_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "io/adapter.h"
#include "io/chat_template.h"
#include "io/generation_config.h"
#include "io/model_config.h"
#include "io/non_finite.h"
#include "io/safetensors.h"
#include "io/tensor_names.h"
#include "io/tokenizer.h"
#include "io/weight_files.h"

namespace volta {
namespace {

constexpr std::int64_t kMaxAdapterConfigBytes = std::int64_t{16} << 20;

// One folder's check while it goes on.
class Check {
 public:
  Check(std::string directory, ThreadPool& pool, const CheckCallback& go_on)
      : directory_(std::move(directory)), pool_(pool), go_on_(go_on) {}

  Result<ModelCheck> run() {
    if (is_adapter()) return run_adapter();
    auto config = load_model_config(directory_);
    if (config) {
      config_ = *std::move(config);
    } else {
      invalid("config.json", config.error().message());
    }
    open_weights();
    if (config_ && complete_) check_structure();
    for (const SafetensorsFile& file : files_) VOLTA_TRY(check_values(file));
    for (const SafetensorsFile& file : files_) check_unchanged(file);
    check_tokenizer();
    check_generation_config();
    check_chat_template();
    return std::move(out_);
  }

 private:
  void invalid(std::string where, std::string what) {
    out_.findings.push_back({Finding::Kind::kInvalid, std::move(where), std::move(what)});
  }
  void contradiction(std::string where, std::string what) {
    out_.findings.push_back({Finding::Kind::kContradiction, std::move(where), std::move(what)});
  }

  bool is_adapter() const;
  Result<ModelCheck> run_adapter();
  void open_weights();
  void open_one_by_one(const std::string& first_error);
  void check_structure();
  void check_entry(const TensorNames& names, const SafetensorsFile& file,
                   const SafetensorsEntry& entry);
  Status check_values(const SafetensorsFile& file);
  void check_unchanged(const SafetensorsFile& file);
  void check_filler(const std::string& where, const SafetensorsEntry& entry,
                    std::span<const std::byte> bytes);
  void check_tied_output(const SafetensorsFile& file, const SafetensorsEntry& entry);
  void check_tokenizer();
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
  bool complete_ = false;                  // All files of the weights could be opened.
  std::map<std::string, Source> sources_;  // By parameter.
};

void Check::open_weights() {
  auto files = open_weight_files(directory_);
  complete_ = files.has_value();
  if (files) {
    files_ = *std::move(files);
  } else {
    open_one_by_one(files.error().message());
  }
}

// That not all could be opened is known; what is wrong with each, and what the others hold, is not.
void Check::open_one_by_one(const std::string& first_error) {
  bool told = false;
  const auto names = list_directory(directory_);
  for (const std::string& name : names ? *names : std::vector<std::string>()) {
    if (!name.starts_with("model") || !name.ends_with(".safetensors")) continue;
    auto file = SafetensorsFile::open(join_path(directory_, name));
    if (file) {
      files_.push_back(*std::move(file));
    } else {
      told = told || file.error().message() == first_error;
      invalid(name, file.error().message());
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
    invalid(file_name(found->second.file->path()),
            fmt::format("tensor '{}' is {}; the config asks for a float tensor {}",
                        found->second.entry->name, to_string(spec), to_string(info.shape)));
  }
  if (out_.findings.size() > before) return;
  // What loading would refuse beyond that: a model that is called good can be loaded.
  const auto loadable = WeightFiles::find(files_, *config_);
  if (!loadable) invalid(file_name(files_.front().path()), loadable.error().message());
}

void Check::check_entry(const TensorNames& names, const SafetensorsFile& file,
                        const SafetensorsEntry& entry) {
  const std::string where = file_name(file.path());
  const std::string full = names.full(entry.name);
  if (names.filler(full)) return check_filler(where, entry, file.bytes(entry));
  if (!names.ignored(full) && !names.wanted(full)) {
    return invalid(where, fmt::format("tensor '{}' {} belongs to no parameter of this architecture",
                                      entry.name, to_string(entry.spec)));
  }
  const bool first = sources_.emplace(full, Source{&file, &entry}).second;
  if (!first) invalid(where, fmt::format("tensor '{}' is there twice", full));
}

void Check::check_filler(const std::string& where, const SafetensorsEntry& entry,
                         std::span<const std::byte> bytes) {
  const bool zero = std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
  if (zero) return;
  invalid(where, fmt::format("tensor '{}' {} is a bias that this architecture has not, and it is "
                             "not zero",
                             entry.name, to_string(entry.spec)));
}

Status Check::check_values(const SafetensorsFile& file) {
  const std::string where = file_name(file.path());
  out_.weight_files.push_back(where);
  for (const SafetensorsEntry& entry : file.entries()) {
    if (go_on_ && !go_on_(out_.bytes)) {
      return fail(ErrorCode::kInterrupted,
                  fmt::format("interrupted after {} bytes of weights", out_.bytes));
    }
    const std::span<const std::byte> bytes = file.bytes(entry);
    const auto encoding =
        stored_encoding(file, entry.name);  // What is wrong with it is told apart.
    const bool integers = encoding && encoding->quantized();
    const NonFinite found = integers ? count_non_finite_scales(bytes, *encoding)
                                     : count_non_finite(bytes, entry.spec.dtype, pool_);
    file.release(entry.name);
    ++out_.tensors;
    out_.bytes += entry.spec.bytes();
    if (found.first >= 0) {
      invalid(where,
              fmt::format("tensor '{}' {} has {} NaN and {} infinite {} {}", entry.name,
                          to_string(entry.spec), found.nans, found.infinities,
                          integers ? "scales, the first at block" : "values, the first at element",
                          found.first));
    }
    if (entry.name == "lm_head.weight") check_tied_output(file, entry);
  }
  return {};
}

void Check::check_unchanged(const SafetensorsFile& file) {
  const Status unchanged = file.check_unchanged();
  if (!unchanged) invalid(file_name(file.path()), unchanged.error().message());
}

// A copy of the embedding that is none would be left out without a word.
void Check::check_tied_output(const SafetensorsFile& file, const SafetensorsEntry& entry) {
  if (!config_ || !config_->tied_output) return;
  const auto embedding = std::ranges::find_if(sources_, [](const auto& source) {
    return source.first == "transformer.wte.weight" || source.first == "model.embed_tokens.weight";
  });
  if (embedding == sources_.end()) return;
  const Source& other = embedding->second;
  if (entry.spec == other.entry->spec &&
      std::ranges::equal(file.bytes(entry), other.file->bytes(*other.entry))) {
    return;
  }
  contradiction(file_name(file.path()),
                fmt::format("the config ties the output to the embedding, but '{}' differs from "
                            "'{}'; is tie_word_embeddings right?",
                            entry.name, other.entry->name));
}

void Check::check_tokenizer() {
  const auto tokenizer = load_tokenizer(directory_);
  if (!tokenizer) {
    if (tokenizer.error().code() != ErrorCode::kNotFound) {
      invalid("tokenizer.json", tokenizer.error().message());
    }
    return;
  }
  out_.has_tokenizer = true;
  const std::int64_t vocab = (*tokenizer)->vocab_size();
  if (!config_ || vocab <= config_->vocab_size) return;
  contradiction("tokenizer.json",
                fmt::format("it has ids up to {}, the model's vocabulary ids 0 to {}", vocab - 1,
                            config_->vocab_size - 1));
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
  const std::string& message = config.error().message();
  const bool own = message.find(where) != std::string::npos;
  if (own || config_) invalid(own ? where : "config.json", message);  // A bad config is told.
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
  invalid(path_exists(join_path(directory_, own)) ? own : "tokenizer_config.json",
          parsed.error().message());
}

bool Check::is_adapter() const {
  return !path_exists(join_path(directory_, "config.json")) &&
         path_exists(join_path(directory_, kAdapterConfigFile));
}

Result<ModelCheck> Check::run_adapter() {
  out_.adapter = true;
  const std::string where(kAdapterConfigFile);
  const std::string path = join_path(directory_, where);
  std::string base;
  if (const auto text = read_text_file(path, kMaxAdapterConfigBytes); !text) {
    invalid(where, text.error().message());
  } else if (const auto lora = parse_adapter_config(*text, path); !lora) {
    invalid(where, lora.error().message());
  } else if (const auto json = parse_json(*text, path)) {
    base = JsonRef(*json, path).get_string("base_model_name_or_path").value_or("");
  }
  const std::string weights(kAdapterWeightsFile);
  if (auto file = SafetensorsFile::open(join_path(directory_, weights))) {
    VOLTA_TRY(check_values(*file));
    check_unchanged(*file);
  } else {
    invalid(weights, file.error().message());
  }
  if (!out_.findings.empty() || base.empty()) return std::move(out_);
  // A name of a hub, or a folder of another machine, says nothing here.
  const auto config = load_model_config(base);
  if (!config) return std::move(out_);
  const auto adapter = load_adapter(directory_, *config);
  if (!adapter) invalid(weights, adapter.error().message());
  return std::move(out_);
}

}  // namespace

std::string_view finding_name(Finding::Kind kind) {
  return kind == Finding::Kind::kInvalid ? "invalid" : "contradiction";
}

Result<ModelCheck> check_model(const std::string& directory, ThreadPool& pool,
                               const CheckCallback& go_on) {
  if (!is_directory(directory)) {
    return fail(ErrorCode::kNotFound, fmt::format("no model folder at '{}'", directory));
  }
  return Check(directory, pool, go_on).run();
}

}  // namespace volta
