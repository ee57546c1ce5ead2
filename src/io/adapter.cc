#include "io/adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "io/safetensors.h"

namespace volta {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";  // Of every tensor's name.
constexpr std::int64_t kMaxConfigBytes = std::int64_t{1} << 24;

// Keys that are read below.
constexpr std::array<std::string_view, 9> kReadKeys = {
    "peft_type",      "r",         "lora_alpha", "lora_dropout",     "use_rslora",
    "target_modules", "task_type", "bias",       "init_lora_weights"};
// Keys that change nothing of what an adapter computes.
constexpr std::array<std::string_view, 9> kFreeKeys = {
    "base_model_name_or_path", "revision",       "auto_mapping",
    "inference_mode",          "peft_version",   "fan_in_fan_out",
    "megatron_core",           "runtime_config", "qalora_group_size"};

// What says "none" of an option, whatever it is.
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

// Refuses by name what goes beyond plain LoRA, known to Volta or not.
Status check_keys(const JsonRef& root) {
  const JsonValue::Object* members = root.node().if_object();
  if (members == nullptr) return {};  // get_string() has said so.
  for (const auto& [key, value] : *members) {
    if (std::ranges::find(kReadKeys, key) != kReadKeys.end()) continue;
    if (std::ranges::find(kFreeKeys, key) != kFreeKeys.end()) continue;
    if (!is_neutral(value)) return unsupported(root, key, value);
  }
  return {};
}

// One of a few words, or nothing.
Status check_word(const JsonRef& root, std::string_view key,
                  std::initializer_list<std::string_view> words) {
  VOLTA_TRY(const auto ref, root.optional_member(key));
  if (!ref) return {};
  VOLTA_TRY(const std::string word, ref->as_string());
  if (std::ranges::find(words, word) != words.end()) return {};
  return unsupported(root, key, ref->node());
}

// How A and B started matters only where that changed the base weights, too (PiSSA, OLoRA, ...).
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

// The specs of a file's tensors, by the names of lora_parameters().
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

}  // namespace

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
  VOLTA_TRY(lora.rank, root.get_int("r", 1, std::int64_t{1} << 32));
  VOLTA_TRY(lora.alpha, root.get_float("lora_alpha", 1e-9, 1e6));
  VOLTA_TRY(const double dropout, root.get_float_or("lora_dropout", 0.0, 0.0, 1.0));
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
  // GPT-2's Conv1D keeps its weights [in, out].
  json.field("fan_in_fan_out", config.position == PositionKind::kLearned);
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
