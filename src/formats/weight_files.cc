#include "formats/weight_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "formats/hub_cache.h"
#include "formats/tensor_names.h"
#include "nn/transformer.h"

namespace volta {
namespace {

constexpr std::int64_t kMaxIndexBytes = std::int64_t{32} << 20;
constexpr std::int64_t kMaxIndexValues = std::int64_t{512} << 10;
constexpr std::size_t kMaxShards = 4096;
constexpr std::int32_t kLeastBlock = 32;  // The smallest number of integers that share a scale.

bool all_zero(const Tensor& tensor) {
  const auto bytes = tensor.host_bytes();
  return bytes &&
         std::all_of(bytes->begin(), bytes->end(), [](std::byte b) { return b == std::byte{0}; });
}

// Checks that every tensor of the index is in the file that the index names, and that every tensor
// of the files is in the index.
Status check_index(const std::string& path, const std::map<std::string, std::string>& file_of,
                   const std::map<std::string, const SafetensorsFile*>& files) {
  std::size_t found = 0;
  for (const auto& [tensor, name] : file_of) {
    const auto file = files.find(name);
    if (file != files.end() && file->second->find(tensor) != nullptr) {
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

// Those of the names that the folder lacks.
std::vector<std::string> absent_files(const std::string& directory,
                                      const std::set<std::string>& names) {
  std::vector<std::string> absent;
  for (const std::string& name : names) {
    if (!path_exists(join_path(directory, name))) absent.push_back(name);
  }
  return absent;
}

Result<std::vector<SafetensorsFile>> open_shards(const std::string& directory,
                                                 const std::string& path) {
  VOLTA_TRY(const std::string text, read_text_file(path, kMaxIndexBytes));
  VOLTA_TRY(const JsonValue json,
            parse_json(text, path, {.max_bytes = kMaxIndexBytes, .max_values = kMaxIndexValues}));
  VOLTA_TRY(const JsonRef map, JsonRef(json, path).member("weight_map"));
  const JsonValue::Object* members = map.node().if_object();
  if (members == nullptr) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: it must be an object", map.path()));
  }
  std::map<std::string, std::string> file_of;  // Tensor name to file name.
  std::set<std::string> names;
  for (const auto& [tensor, value] : *members) {
    VOLTA_TRY(const std::string name, map.at(value).as_string());
    if (!is_plain_file_name(name) || !name.ends_with(".safetensors")) {
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
    auto file = SafetensorsFile::open(join_path(directory, name));
    if (!file && file.error().code() == ErrorCode::kNotFound) {
      return missing_files_error(
          Error(ErrorCode::kNotFound,
                fmt::format("{}, which {} lists; the folder is incomplete: download it again",
                            file.error().message(), path)),
          directory, absent_files(directory, names));
    }
    if (!file) return std::unexpected(std::move(file).error());
    files.push_back(*std::move(file));
  }
  std::map<std::string, const SafetensorsFile*> by_name;
  for (std::size_t i = 0; const std::string& name : names) by_name.emplace(name, &files[i++]);
  VOLTA_TRY(check_index(path, file_of, by_name));
  return files;
}

}  // namespace

std::string quant_key(std::string_view tensor) { return fmt::format("volta.quant.{}", tensor); }

std::string quant_text(const Encoding& encoding) {
  return fmt::format("{} by {}{}", format_info(encoding.quant).elements, encoding.block,
                     encoding.transposed ? ", transposed" : "");
}

Result<Encoding> stored_encoding(const SafetensorsFile& file, std::string_view tensor) {
  const auto text = file.metadata().find(quant_key(tensor));
  if (text == file.metadata().end()) return Encoding{};
  for (const FormatInfo& format : kFormats) {
    if (format.quant == Quant::kNone || !format.from_f32) continue;  // Volta does not write it.
    for (const std::int32_t block : {32, 64, 128, 256}) {
      for (const bool transposed : {false, true}) {
        const Encoding encoding{.transposed = transposed, .quant = format.quant, .block = block};
        if (quant_text(encoding) == text->second) return encoding;
      }
    }
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: tensor '{}' is stored as '{}', which this version does not know",
                          file.path(), tensor, text->second));
}

Result<std::vector<SafetensorsFile>> open_weight_files(const std::string& directory) {
  const std::string single = join_path(directory, "model.safetensors");
  const std::string index = single + ".index.json";
  if (!path_exists(single) && path_exists(index)) return open_shards(directory, index);
  auto file = SafetensorsFile::open(single);
  if (!file) {
    return missing_files_error(std::move(file).error(), directory, {file_name(single)});
  }
  std::vector<SafetensorsFile> files;
  files.push_back(*std::move(file));
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
      if (names.filler(full, entry.spec.shape)) {
        VOLTA_TRY(const Tensor bias, out.files_[i].map(entry.name));
        if (all_zero(bias)) continue;
      }
      if (!names.wanted(full)) {
        return fail(ErrorCode::kInvalidFile,
                    fmt::format("tensor '{}' {} belongs to no parameter of this architecture",
                                entry.name, to_string(entry.spec)));
      }
      VOLTA_TRY(const Encoding encoding, stored_encoding(out.files_[i], entry.name));
      if (!out.tensors_.emplace(full, StoredTensor{i, entry, encoding}).second) {
        return fail(ErrorCode::kInvalidFile,
                    fmt::format("tensor '{}' is there twice, in two files or with and without its "
                                "prefix",
                                full));
      }
    }
  }
  std::map<std::string, TensorSpec> specs;
  for (const ParameterInfo& info : parameters(config)) {
    VOLTA_TRY(specs[info.name], out.spec(info));
  }
  VOLTA_TRY(check_integer_weights(config, specs));
  return out;
}

std::vector<SafetensorsEntry> WeightFiles::entries(const TransformerConfig& config) const {
  std::vector<SafetensorsEntry> list;
  for (const ParameterInfo& info : parameters(config)) {
    if (const auto found = find(info)) list.push_back((*found)->entry);
  }
  return list;
}

Result<const WeightFiles::StoredTensor*> WeightFiles::find(const ParameterInfo& parameter) const {
  const auto found = tensors_.find(parameter.name);
  if (found != tensors_.end()) return &found->second;
  return fail(ErrorCode::kInvalidFile,
              fmt::format("the model has no tensor '{}' {}; the weights do not fit the config",
                          parameter.name, to_string(parameter.shape)));
}

Result<TensorSpec> WeightFiles::spec(const ParameterInfo& parameter) {
  VOLTA_TRY(const StoredTensor* found, find(parameter));
  const TensorSpec& spec = found->entry.spec;
  if (const Encoding& e = found->encoding; e.quantized() && parameter.shape.rank() == 2) {
    const TensorSpec whole{DType::kF32, parameter.shape, e};
    const Shape bytes(e.n(parameter.shape), e.blocks(e.k(parameter.shape)) * e.block_bytes());
    const std::int64_t k = e.k(parameter.shape);
    if (e.block >= k + kLeastBlock) {  // Too much padding: shorter blocks would hold k elements.
      return fail(
          ErrorCode::kInvalidFile,
          fmt::format("tensor '{}' is stored as '{}', in blocks longer than the {} elements "
                      "that they divide; quantize the model again",
                      found->entry.name, quant_text(e), k));
    }
    if (spec == TensorSpec{DType::kU8, bytes}) return whole;
    return fail(ErrorCode::kInvalidFile,
                fmt::format("tensor '{}' is {}; {} takes u8{}", found->entry.name, to_string(spec),
                            to_string(whole), to_string(bytes)));
  }
  if (spec.shape == parameter.shape && is_float(spec.dtype)) return spec;
  return fail(ErrorCode::kInvalidFile,
              fmt::format("tensor '{}' is {}; the config asks for a float tensor {}",
                          found->entry.name, to_string(spec), to_string(parameter.shape)));
}

// Returns a view of the mapped file. The caller does the reading, and so it also checks for
// interruptions.
Result<Tensor> WeightFiles::read(const ParameterInfo& parameter,
                                 const Interruption& /*interrupted*/) {
  VOLTA_TRY(const StoredTensor* found, find(parameter));
  VOLTA_TRY(Tensor tensor, files_[found->file].map(found->entry.name));
  if (!found->encoding.quantized()) return tensor;
  VOLTA_TRY(const TensorSpec whole, spec(parameter));
  return Tensor::from_buffer(tensor.buffer(), tensor.offset(), whole);
}

Status WeightFiles::check_unchanged(const ParameterInfo& parameter) const {
  VOLTA_TRY(const StoredTensor* found, find(parameter));
  return files_[found->file].check_unchanged();
}

Status WeightFiles::check_unchanged() const {
  for (const SafetensorsFile& file : files_) VOLTA_TRY(file.check_unchanged());
  return {};
}

void WeightFiles::release(const ParameterInfo& parameter) {
  const auto found = find(parameter);
  if (found) files_[(*found)->file].release((*found)->entry.name);
}

}  // namespace volta
