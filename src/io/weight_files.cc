#include "io/weight_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "io/model_config.h"

namespace volta {
namespace {

constexpr std::int64_t kMaxIndexBytes = std::int64_t{64} << 20;
constexpr std::size_t kMaxShards = 4096;

bool all_zero(const Tensor& tensor) {
  const auto bytes = tensor.host_bytes();
  return bytes &&
         std::all_of(bytes->begin(), bytes->end(), [](std::byte b) { return b == std::byte{0}; });
}

// Which tensor of a file is which parameter. Brings the names of known exporters to the ones
// parameters() lists, and knows what is no weight: attention masks, rotary tables, a copy of a tied
// output, zero biases that save_model added.
class TensorNames {
 public:
  explicit TensorNames(const TransformerConfig& config) : tied_(config.tied_output) {
    for (const ParameterInfo& info : parameters(config)) wanted_.insert(info.name);
    for (const ParameterInfo& info : missing_biases(config)) fillers_.insert(info.name);
  }
  /// With the prefix that some exporters leave out.
  std::string full(const std::string& name) const {
    for (const std::string_view prefix : {"transformer.", "model."}) {
      const std::string prefixed = std::string(prefix) + name;
      const bool bare =
          !wanted_.contains(name) && (wanted_.contains(prefixed) || fillers_.contains(prefixed));
      if (bare) return prefixed;
    }
    return name;
  }
  /// Something that is not loaded, whatever it holds.
  bool ignored(const std::string& full) const {
    const bool computed = full.ends_with(".attn.bias") || full.ends_with(".attn.masked_bias") ||
                          full.ends_with(".rotary_emb.inv_freq");
    return !wanted_.contains(full) && (computed || (full == "lm_head.weight" && tied_));
  }
  /// A bias that the model lacks: zero, or the file is another model's.
  bool filler(const std::string& full) const { return fillers_.contains(full); }
  bool wanted(const std::string& full) const { return wanted_.contains(full); }

 private:
  bool tied_;
  std::set<std::string> wanted_, fillers_;
};

// A shard lies in the folder itself.
bool plain_file_name(std::string_view name) {
  return !name.empty() && name.find('/') == std::string_view::npos &&
         name.find('\\') == std::string_view::npos && name != "." && name != ".." &&
         name.find('\0') == std::string_view::npos && name.ends_with(".safetensors");
}

// Every tensor of the index is in the file it names, and every tensor of the files is in the index.
Status check_index(const std::string& path, const std::map<std::string, std::string>& file_of,
                   const std::map<std::string, const SafetensorsFile*>& files) {
  std::size_t found = 0;
  for (const auto& [tensor, name] : file_of) {
    if (files.at(name)->find(tensor) != nullptr) {
      ++found;
      continue;
    }
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: tensor '{}' is not in {}, where the index has it; download the "
                            "folder again",
                            path, tensor, name));
  }
  std::size_t present = 0;
  for (const auto& [name, file] : files) present += file->entries().size();
  if (present == found) return {};
  for (const auto& [name, file] : files) {
    for (const SafetensorsEntry& entry : file->entries()) {
      const auto listed = file_of.find(entry.name);
      if (listed != file_of.end() && listed->second == name) continue;
      return fail(
          ErrorCode::kInvalidFile,
          fmt::format("{}: the index does not list tensor '{}' of {}", path, entry.name, name));
    }
  }
  return {};
}

Result<std::vector<SafetensorsFile>> open_shards(const std::string& directory,
                                                 const std::string& path) {
  VOLTA_TRY(const std::string text, read_text_file(path, kMaxIndexBytes));
  VOLTA_TRY(const JsonValue json, parse_json(text, path, {.max_bytes = kMaxIndexBytes}));
  VOLTA_TRY(const JsonRef map, JsonRef(json, path).member("weight_map"));
  const JsonValue::Object* members = map.node().if_object();
  if (members == nullptr) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: it must be an object", map.path()));
  }
  std::map<std::string, std::string> file_of;  // By tensor.
  std::set<std::string> names;
  for (const auto& [tensor, value] : *members) {
    VOLTA_TRY(const std::string name,
              JsonRef(value, fmt::format("{}: {}", path, tensor)).as_string());
    if (!plain_file_name(name)) {
      return fail(ErrorCode::kInvalidFile,
                  fmt::format("{}: tensor '{}' is in '{}'; a shard is a .safetensors file of the "
                              "folder itself",
                              path, tensor, name));
    }
    names.insert(name);
    file_of.emplace(tensor, name);
  }
  if (names.empty() || names.size() > kMaxShards) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: {} shards; there must be 1 to {}", path,
                                                     names.size(), kMaxShards));
  }
  std::vector<SafetensorsFile> files;
  for (const std::string& name : names) {
    VOLTA_TRY(SafetensorsFile file, SafetensorsFile::open(join_path(directory, name)));
    files.push_back(std::move(file));
  }
  std::map<std::string, const SafetensorsFile*> by_name;
  for (std::size_t i = 0; const std::string& name : names) by_name.emplace(name, &files[i++]);
  VOLTA_TRY(check_index(path, file_of, by_name));
  return files;
}

}  // namespace

std::vector<ParameterInfo> missing_biases(const TransformerConfig& config) {
  std::vector<ParameterInfo> missing;
  if (model_family(config) != "gpt2") return missing;
  TransformerConfig full = config;
  full.norm_bias = full.attention_bias = full.attention_out_bias = full.ffn_bias = true;
  std::set<std::string> present;
  for (const ParameterInfo& info : parameters(config)) present.insert(info.name);
  for (ParameterInfo& info : parameters(full)) {
    if (!present.contains(info.name)) missing.push_back(std::move(info));
  }
  return missing;
}

Result<std::vector<SafetensorsFile>> open_weight_files(const std::string& directory) {
  const std::string single = join_path(directory, "model.safetensors");
  const std::string index = single + ".index.json";
  if (!path_exists(single) && path_exists(index)) return open_shards(directory, index);
  VOLTA_TRY(SafetensorsFile file, SafetensorsFile::open(single));
  std::vector<SafetensorsFile> files;
  files.push_back(std::move(file));
  return files;
}

Result<WeightFiles> WeightFiles::open(const std::string& directory,
                                      const TransformerConfig& config) {
  VOLTA_TRY(auto files, open_weight_files(directory));
  const std::string where = files.size() == 1
                                ? files.front().path()
                                : join_path(directory, "model.safetensors.index.json");
  auto found = find(std::move(files), config);
  if (!found) return std::unexpected(std::move(found).error().with_context(where));
  return found;
}

Result<WeightFiles> WeightFiles::find(std::vector<SafetensorsFile> files,
                                      const TransformerConfig& config) {
  const TensorNames names(config);
  WeightFiles out;
  out.files_ = std::move(files);
  for (std::size_t i = 0; i < out.files_.size(); ++i) {
    for (const SafetensorsEntry& entry : out.files_[i].entries()) {
      const std::string full = names.full(entry.name);
      if (names.ignored(full)) continue;
      if (names.filler(full)) {
        VOLTA_TRY(const Tensor bias, out.files_[i].map(entry.name));
        if (all_zero(bias)) continue;
      }
      if (!names.wanted(full)) {
        return fail(ErrorCode::kInvalidFile,
                    fmt::format("tensor '{}' {} belongs to no parameter of this architecture",
                                entry.name, to_string(entry.spec)));
      }
      if (!out.places_.emplace(full, Place{i, entry}).second) {
        return fail(ErrorCode::kInvalidFile,
                    fmt::format("tensor '{}' is there twice, in two files or with and without its "
                                "prefix",
                                full));
      }
    }
  }
  for (const ParameterInfo& info : parameters(config)) VOLTA_TRY(out.spec(info));
  return out;
}

std::vector<SafetensorsEntry> WeightFiles::entries(const TransformerConfig& config) const {
  std::vector<SafetensorsEntry> list;
  for (const ParameterInfo& info : parameters(config)) {
    if (const auto found = place(info)) list.push_back((*found)->entry);
  }
  return list;
}

Result<const WeightFiles::Place*> WeightFiles::place(const ParameterInfo& parameter) const {
  const auto found = places_.find(parameter.name);
  if (found != places_.end()) return &found->second;
  return fail(ErrorCode::kInvalidFile,
              fmt::format("the model has no tensor '{}' {}; the weights do not fit the config",
                          parameter.name, to_string(parameter.shape)));
}

Result<TensorSpec> WeightFiles::spec(const ParameterInfo& parameter) {
  VOLTA_TRY(const Place* found, place(parameter));
  const TensorSpec& spec = found->entry.spec;
  if (spec.shape == parameter.shape && is_float(spec.dtype)) return spec;
  return fail(ErrorCode::kInvalidFile,
              fmt::format("tensor '{}' is {}; the config asks for a float tensor {}",
                          found->entry.name, to_string(spec), to_string(parameter.shape)));
}

Result<Tensor> WeightFiles::read(const ParameterInfo& parameter) {
  VOLTA_TRY(const Place* found, place(parameter));
  return files_[found->file].map(found->entry.name);
}

void WeightFiles::release(const ParameterInfo& parameter) {
  const auto found = place(parameter);
  if (found) files_[(*found)->file].release((*found)->entry.name);
}

}  // namespace volta
