#include "formats/adapter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "formats/model_config.h"
#include "formats/safetensors.h"
#include "nn/weight_names.h"

namespace volta {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";  // Prefix of every tensor's name.

// Keys that this file reads.
constexpr std::array<std::string_view, 9> kReadKeys = {
    "peft_type",      "r",         "lora_alpha", "lora_dropout",     "use_rslora",
    "target_modules", "task_type", "bias",       "init_lora_weights"};
// Keys that do not affect what an adapter computes.
constexpr std::array<std::string_view, 9> kFreeAdapterKeys = {
    "base_model_name_or_path", "revision",       "auto_mapping",
    "inference_mode",          "peft_version",   "fan_in_fan_out",
    "megatron_core",           "runtime_config", "qalora_group_size"};

// Whether a value turns an option off, for any option.
bool is_neutral(const JsonValue& value) {
  if (value.is_null()) return true;
  if (const bool* flag = value.if_bool()) return !*flag;
  if (const std::string* text = value.if_string()) return text->empty();
  if (const auto* list = value.if_array()) return list->empty();
  const auto* object = value.if_object();
  return object != nullptr && object->empty();
}

std::unexpected<Error> unsupported(const JsonRef& root, std::string_view key,
                                   const JsonValue& value) {
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: {} is {}; Volta runs plain LoRA adapters, without it", root.path(),
                          key, value.leaf_text()));
}

// Refuses options beyond plain LoRA, with the key's name, whether or not Volta knows the key.
Status check_keys(const JsonRef& root) {
  const JsonValue::Object* members = root.node().if_object();
  if (members == nullptr) return {};  // get_string() has reported this.
  for (const auto& [key, value] : *members) {
    if (std::ranges::find(kReadKeys, key) != kReadKeys.end()) continue;
    if (std::ranges::find(kFreeAdapterKeys, key) != kFreeAdapterKeys.end()) continue;
    if (!is_neutral(value)) return unsupported(root, key, value);
  }
  return {};
}

// Checks that a key is missing or has one of a few values.
Status check_word(const JsonRef& root, std::string_view key,
                  std::initializer_list<std::string_view> words) {
  VOLTA_TRY(const auto ref, root.optional_member(key));
  if (!ref) return {};
  VOLTA_TRY(const std::string word, ref->as_string());
  if (std::ranges::find(words, word) != words.end()) return {};
  return unsupported(root, key, ref->node());
}

// The initial values of A and B matter only for methods that also changed the base weights (PiSSA,
// OLoRA, ...).
Status check_init(const JsonRef& root) {
  const JsonValue* init = root.node().find("init_lora_weights");
  if (init == nullptr || init->is_null() || init->if_bool() != nullptr) return {};
  return check_word(root, "init_lora_weights", {"gaussian", "orthogonal", "eva"});
}

Result<std::set<std::string, std::less<>>> parse_targets(const JsonRef& root) {
  VOLTA_TRY(const JsonRef ref, root.member("target_modules"));
  if (const std::string* text = ref.node().if_string()) {
    if (*text == kAllLinear) return std::set<std::string, std::less<>>{*text};
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: '{}' is a regular expression; Volta reads a list of names, or {}",
                            ref.path(), *text, kAllLinear));
  }
  VOLTA_TRY(const auto elements, ref.elements());
  std::set<std::string, std::less<>> targets;
  for (const JsonRef& element : elements) {
    VOLTA_TRY(std::string target, element.as_string());
    targets.insert(std::move(target));
  }
  if (targets.empty()) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: there are no targets", ref.path()));
  }
  return targets;
}

// The specs of a file's tensors, under the names of lora_parameters().
Result<std::map<std::string, TensorSpec>> adapter_specs(const SafetensorsFile& file) {
  std::map<std::string, TensorSpec> specs;
  for (const SafetensorsEntry& entry : file.entries()) {
    if (!entry.name.starts_with(kPrefix)) {
      return fail(
          ErrorCode::kInvalidFile,
          fmt::format("the tensor '{}' is none of an adapter's: their names begin with '{}'",
                      entry.name, kPrefix));
    }
    specs.emplace(entry.name.substr(kPrefix.size()), entry.spec);
  }
  return specs;
}

Result<Adapter> load_tensors(const SafetensorsFile& file, LoraConfig lora,
                             const TransformerConfig& config) {
  VOLTA_TRY(const auto specs, adapter_specs(file));
  VOLTA_TRY(check_adapter(config, lora, specs));
  Adapter adapter{.config = std::move(lora), .weights = {}};
  for (const auto& [name, spec] : specs) {
    VOLTA_TRY(adapter.weights[name], file.load(fmt::format("{}{}", kPrefix, name)));
  }
  return adapter;
}

constexpr std::string_view kSuffixA = ".lora_A.weight";
constexpr std::string_view kSuffixB = ".lora_B.weight";

// The two tensors of a projection, where the file has them.
struct TensorPair {
  const SafetensorsEntry* a = nullptr;  ///< [rank, inputs]
  const SafetensorsEntry* b = nullptr;  ///< [outputs, rank]
};
using TensorPairs = std::map<std::string, TensorPair, std::less<>>;  // By the projection's name.

// The PROJECTION in "base_model.model.PROJECTION.lora_A.weight"; empty for other names.
std::string_view projection_of(std::string_view tensor) {
  const bool known =
      tensor.starts_with(kPrefix) && (tensor.ends_with(kSuffixA) || tensor.ends_with(kSuffixB));
  if (!known || tensor.size() <= kPrefix.size() + kSuffixA.size()) return {};
  tensor.remove_prefix(kPrefix.size());
  tensor.remove_suffix(kSuffixA.size());
  return tensor;
}

std::string check_pair_tensor(const LoraConfig& lora, const SafetensorsEntry& entry) {
  const bool is_a = entry.name.ends_with(kSuffixA);
  const Shape& shape = entry.spec.shape;
  const bool fits = shape.rank() == 2 && shape[is_a ? 0 : 1] == lora.rank;
  if (fits && is_float(entry.spec.dtype)) return "";
  return fmt::format(
      "tensor '{}' is {}; the rank of {} in {} asks for a float tensor {}", entry.name,
      to_string(entry.spec), lora.rank, kAdapterConfigFile,
      is_a ? fmt::format("[{}, inputs]", lora.rank) : fmt::format("[outputs, {}]", lora.rank));
}

// Splits a projection's name: the name with "*" for the number of its block, and that number, or -1
// if there is none.
std::pair<std::string, std::int64_t> split_block(std::string_view projection) {
  for (std::size_t begin = 0; begin < projection.size();) {
    const std::size_t end = std::min(projection.find('.', begin), projection.size());
    const auto number = parse_int<std::int64_t>(projection.substr(begin, end - begin), "block", 0);
    if (number) {
      return {fmt::format("{}*{}", projection.substr(0, begin), projection.substr(end)), *number};
    }
    begin = end + 1;
  }
  return {std::string(projection), -1};
}

// A model has the same projections in every block, from the first to the last.
void check_blocks(const TensorPairs& pairs, std::vector<std::string>& flaws) {
  std::map<std::string, std::set<std::int64_t>> blocks;
  std::int64_t last = -1;
  for (const auto& [projection, pair] : pairs) {
    const auto [name, number] = split_block(projection);
    if (number < 0) continue;
    blocks[name].insert(number);
    last = std::max(last, number);
  }
  for (const auto& [name, numbers] : blocks) {
    if (std::ssize(numbers) > last) continue;  // All blocks from 0 to the last one.
    flaws.push_back(
        fmt::format("'{}' has tensors in {} blocks, but the last block is number {}: "
                    "the others are missing",
                    name, numbers.size(), last));
  }
}

void check_targets(const LoraConfig& lora, const TensorPairs& pairs,
                   std::vector<std::string>& flaws) {
  for (const std::string& target : lora.targets) {
    LoraConfig alone = lora;
    alone.targets = {target};
    const auto is_its_own = [&](const auto& pair) { return is_target(alone, pair.first); };
    if (target == kAllLinear || std::ranges::any_of(pairs, is_its_own)) continue;
    flaws.push_back(
        fmt::format("the target '{}' of {} has no tensors", target, kAdapterConfigFile));
  }
}

}  // namespace

std::vector<std::string> find_adapter_flaws(const LoraConfig& lora, const SafetensorsFile& file) {
  std::vector<std::string> flaws;
  TensorPairs pairs;
  const bool all = lora.targets.contains(kAllLinear);
  for (const SafetensorsEntry& entry : file.entries()) {
    const std::string_view projection = projection_of(entry.name);
    if (projection.empty()) {
      flaws.push_back(
          fmt::format("tensor '{}' is none of an adapter's: they are named "
                      "{}PROJECTION{} and {}PROJECTION{}",
                      entry.name, kPrefix, kSuffixA, kPrefix, kSuffixB));
      continue;
    }
    if (!all && !is_target(lora, projection)) {
      flaws.push_back(fmt::format("tensor '{}' {} belongs to no target of {}: {}", entry.name,
                                  to_string(entry.spec), kAdapterConfigFile,
                                  fmt::join(lora.targets, ", ")));
      continue;
    }
    TensorPair& pair = pairs[std::string(projection)];
    (entry.name.ends_with(kSuffixA) ? pair.a : pair.b) = &entry;
    std::string flaw = check_pair_tensor(lora, entry);
    if (!flaw.empty()) flaws.push_back(std::move(flaw));
  }
  for (const auto& [projection, pair] : pairs) {
    if (pair.a != nullptr && pair.b != nullptr) continue;
    flaws.push_back(fmt::format("tensor '{}' is there, but not '{}{}{}'",
                                (pair.a != nullptr ? pair.a : pair.b)->name, kPrefix, projection,
                                pair.a != nullptr ? kSuffixB : kSuffixA));
  }
  check_targets(lora, pairs, flaws);
  check_blocks(pairs, flaws);
  return flaws;
}

Result<LoraConfig> parse_adapter_config(std::string_view text, std::string_view name) {
  VOLTA_TRY(const JsonValue json, parse_json(text, name, {.max_bytes = kMaxConfigBytes}));
  const JsonRef root(json, name);
  VOLTA_TRY(const std::string type, root.get_string("peft_type"));
  if (type != "LORA") {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: peft_type is '{}'; Volta runs LORA", root.path(), type));
  }
  VOLTA_TRY(check_word(root, "task_type", {"CAUSAL_LM"}));
  VOLTA_TRY(check_word(root, "bias", {"none"}));
  VOLTA_TRY(check_init(root));
  VOLTA_TRY(check_keys(root));
  LoraConfig lora;
  VOLTA_TRY(lora.rank, root.get_int("r", 1, kMaxLoraRank));
  VOLTA_TRY(lora.alpha, root.get_float("lora_alpha", 1e-9, 1e6));
  constexpr double kMostDropout = 0.999999;  // With a dropout of 1 nothing could be trained.
  VOLTA_TRY(const double dropout, root.get_float_or("lora_dropout", 0.0, 0.0, kMostDropout));
  lora.dropout = static_cast<float>(dropout);
  VOLTA_TRY(lora.rank_stabilized, root.get_bool_or("use_rslora", false));
  VOLTA_TRY(lora.targets, parse_targets(root));
  return lora;
}

Result<std::string> adapter_base_name(const std::string& directory) {
  const std::string path = join_path(directory, kAdapterConfigFile);
  VOLTA_TRY(const std::string text, read_text_file(path, kMaxConfigBytes));
  VOLTA_TRY(const JsonValue json, parse_json(text, path, {.max_bytes = kMaxConfigBytes}));
  VOLTA_TRY(const auto name, JsonRef(json, path).optional_member("base_model_name_or_path"));
  if (!name) return "";
  return name->as_string();
}

std::string adapter_config_json(const TransformerConfig& config, const LoraConfig& lora,
                                std::string_view base) {
  JsonWriter json(2);
  json.begin_object().field("base_model_name_or_path", base).field("bias", "none");
  // GPT-2's Conv1D stores its weights as [in, out].
  json.field("fan_in_fan_out", weight_names(config).in_out);
  json.field("inference_mode", true).field("init_lora_weights", true);
  json.field("lora_alpha", lora.alpha).field("lora_dropout", lora.dropout);
  json.key("modules_to_save").null().field("peft_type", "LORA").field("r", lora.rank);
  json.key("target_modules").begin_array();
  for (const std::string& target : lora.targets) json.value(target);
  json.end_array().field("task_type", "CAUSAL_LM").field("use_dora", false);
  json.field("use_rslora", lora.rank_stabilized).end_object();
  return std::move(json).take() + "\n";
}

Result<Adapter> load_adapter(const std::string& directory, const TransformerConfig& config) {
  const std::string config_path = join_path(directory, kAdapterConfigFile);
  const std::string weights_path = join_path(directory, kAdapterWeightsFile);
  VOLTA_TRY(const std::string text, read_text_file(config_path, kMaxConfigBytes));
  VOLTA_TRY(LoraConfig parsed, parse_adapter_config(text, config_path));
  auto completed = complete_lora(std::move(parsed), config);
  if (!completed) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: {}", config_path, completed.error().message()));
  }
  VOLTA_TRY(const SafetensorsFile file, SafetensorsFile::open(weights_path));
  auto adapter = load_tensors(file, *std::move(completed), config);
  if (!adapter) return std::unexpected(std::move(adapter).error().with_context(weights_path));
  return adapter;
}

Status save_adapter(const std::string& directory, const TransformerConfig& config,
                    const Adapter& adapter, std::string_view base) {
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, tensor] : adapter.weights) {
    tensors.emplace(fmt::format("{}{}", kPrefix, name), tensor);
  }
  VOLTA_TRY(write_file_atomic(join_path(directory, kAdapterConfigFile),
                              adapter_config_json(config, adapter.config, base)));
  return write_safetensors(join_path(directory, kAdapterWeightsFile), tensors, {{"format", "pt"}});
}

}  // namespace volta
