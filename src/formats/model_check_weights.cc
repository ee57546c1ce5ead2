// The part of check_model() for weights: the tensors against the config, and the values.
#include <fmt/format.h>

#include "base/file.h"
#include "formats/model_check_parts.h"
#include "formats/weight_files.h"
#include "tensor/spec.h"

namespace volta {

void WeightsCheck::open(const std::string& directory) {
  auto files = open_weight_files(directory);
  complete_ = files.has_value();
  if (files) {
    files_ = *std::move(files);
  } else {
    open_one_by_one(directory, files.error());
  }
}

// Opening stopped at the first bad file. Opens each one again to report every problem and to check
// the rest.
void WeightsCheck::open_one_by_one(const std::string& directory, const Error& first_error) {
  bool told = false;
  const auto names = list_directory(directory);
  for (const std::string& name : names ? *names : std::vector<std::string>()) {
    if (!name.starts_with("model") || !name.ends_with(".safetensors")) continue;
    auto file = SafetensorsFile::open(join_path(directory, name));
    if (file) {
      files_.push_back(*std::move(file));
    } else {
      told = told || file.error().message() == first_error.message();
      findings_.invalid(name, file.error());
    }
  }
  if (!told) findings_.invalid("model.safetensors", first_error);
}

void WeightsCheck::check_structure(const TransformerConfig& config) {
  if (!complete_) return;
  const TensorNames names(config);
  const std::size_t before = findings_.list().size();
  for (const SafetensorsFile& file : files_) {
    for (const SafetensorsEntry& entry : file.entries()) check_entry(names, file, entry);
  }
  for (const ParameterInfo& info : parameters(config)) check_parameter(info);
  if (findings_.list().size() > before) return;
  // Reports what only loading would find, so that a model without findings can be loaded.
  const auto loadable = WeightFiles::find(files_, config);
  if (!loadable) findings_.invalid(file_name(files_.front().path()), loadable.error());
}

void WeightsCheck::check_parameter(const ParameterInfo& info) {
  const auto found = sources_.find(info.name);
  if (found == sources_.end()) {
    return findings_.invalid(
        file_name(files_.front().path()),
        fmt::format("tensor '{}' {} is missing", info.name, to_string(info.shape)));
  }
  const TensorSpec& spec = found->second.entry->spec;
  if (spec.shape == info.shape && is_float(spec.dtype)) return;
  // Quantised integers are stored as bytes; WeightFiles checks their sizes.
  const std::string quantized = quant_key(found->second.entry->name);
  if (found->second.file->metadata().contains(quantized)) return;
  misfits_.insert(found->second.entry);
  findings_.invalid(file_name(found->second.file->path()),
                    fmt::format("tensor '{}' is {}; the config asks for a float tensor {}",
                                found->second.entry->name, to_string(spec), to_string(info.shape)));
}

void WeightsCheck::check_entry(const TensorNames& names, const SafetensorsFile& file,
                               const SafetensorsEntry& entry) {
  const std::string where = file_name(file.path());
  const std::string full = names.full(entry.name);
  if (names.filler(full, entry.spec.shape) || names.ignored(full)) ++not_read_;
  if (names.filler(full, entry.spec.shape)) return check_filler(where, entry, file.bytes(entry));
  if (!names.ignored(full) && !names.wanted(full)) {
    misfits_.insert(&entry);
    return findings_.invalid(
        where, fmt::format("tensor '{}' {} belongs to no parameter of this architecture",
                           entry.name, to_string(entry.spec)));
  }
  const bool first = sources_.emplace(full, Source{&file, &entry}).second;
  if (!first) findings_.invalid(where, fmt::format("tensor '{}' is there twice", full));
}

Status WeightsCheck::check_values(const TransformerConfig* config, ModelCheck& out) {
  out.not_read = not_read_;
  for (const SafetensorsFile& file : files_) {
    for (const SafetensorsEntry& entry : file.entries()) {
      if (!misfits_.contains(&entry)) reading_.expect(entry.spec.bytes());
    }
  }
  std::vector<const SafetensorsFile*> whole;
  for (const SafetensorsFile& file : files_) {
    Status done = check_file(file, config, out);
    const bool changed = !done && done.error().code() == ErrorCode::kInvalidFile;
    if (!done && !changed) return done;
    if (changed) findings_.invalid(file_name(file.path()), done.error());
    if (!changed) whole.push_back(&file);
  }
  for (const SafetensorsFile* file : whole) {  // Files that changed while others were read.
    const Status unchanged = file->check_unchanged();
    if (!unchanged) findings_.invalid(file_name(file->path()), unchanged.error());
  }
  return {};
}

Status WeightsCheck::check_file(const SafetensorsFile& file, const TransformerConfig* config,
                                ModelCheck& out) {
  out.weight_files.push_back(file_name(file.path()));
  for (const SafetensorsEntry& entry : file.entries()) {
    ++out.tensors;
    if (misfits_.contains(&entry)) continue;
    VOLTA_TRY(check_tensor(file, entry));
    file.release(entry.name);
    const bool tied = config != nullptr && config->tied_output && entry.name == "lm_head.weight";
    if (tied) VOLTA_TRY(check_tied_output(file, entry));
  }
  return {};
}

Status WeightsCheck::check_tensor(const SafetensorsFile& file, const SafetensorsEntry& entry) {
  const auto bytes = file.bytes(entry);
  const auto encoding = stored_encoding(file, entry.name);  // Errors are reported elsewhere.
  const bool integers = encoding && encoding->quantized();
  const std::int64_t unit =
      integers ? encoding->block_bytes() : std::max<std::int64_t>(dtype_size(entry.spec.dtype), 1);
  NonFinite found;
  VOLTA_TRY(reading_.in_pieces(
      file, entry.spec.bytes(), unit, [&](std::int64_t begin, std::int64_t length) {
        const auto piece =
            bytes.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(length));
        found.add(integers ? count_non_finite_scales(piece, *encoding)
                           : count_non_finite(piece, entry.spec.dtype, pool_),
                  begin / unit);
        file.release(entry.name);
      }));
  report_non_finite(findings_, file_name(file.path()),
                    fmt::format("'{}' {}", entry.name, to_string(entry.spec)), found,
                    integers ? "scales" : "values", integers ? "block" : "element");
  return {};
}

void WeightsCheck::check_filler(const std::string& where, const SafetensorsEntry& entry,
                                std::span<const std::byte> bytes) {
  const bool zero = std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
  if (zero) return;
  findings_.invalid(
      where, fmt::format("tensor '{}' {} is a bias that this architecture has not, and it is "
                         "not zero",
                         entry.name, to_string(entry.spec)));
}

// Loading ignores this tensor, so a difference from the embedding would go unnoticed.
Status WeightsCheck::check_tied_output(const SafetensorsFile& file, const SafetensorsEntry& entry) {
  const auto embedding = std::ranges::find_if(sources_, [](const auto& source) {
    return source.first == "transformer.wte.weight" || source.first == "model.embed_tokens.weight";
  });
  if (embedding == sources_.end()) return {};
  const Source& other = embedding->second;
  bool same = entry.spec == other.entry->spec;
  if (same) {
    const auto a = file.bytes(entry), b = other.file->bytes(*other.entry);
    reading_.expect(entry.spec.bytes());
    VOLTA_TRY(reading_.in_pieces(
        file, entry.spec.bytes(), 1, [&](std::int64_t begin, std::int64_t length) {
          const auto from = static_cast<std::size_t>(begin),
                     count = static_cast<std::size_t>(length);
          same = same && std::ranges::equal(a.subspan(from, count), b.subspan(from, count));
        }));
  }
  if (same) return {};
  findings_.contradiction(
      file_name(file.path()),
      fmt::format("the config ties the output to the embedding, but '{}' differs from "
                  "'{}'; is tie_word_embeddings right?",
                  entry.name, other.entry->name));
  return {};
}

void report_non_finite(Findings& findings, const std::string& where, const std::string& tensor,
                       const NonFinite& found, std::string_view values, std::string_view element) {
  if (found.first < 0) return;
  findings.invalid(
      where, fmt::format("tensor {} has {} NaN and {} infinite {}, the first at {} {}", tensor,
                         found.nans, found.infinities, values, element, found.first));
}

Status check_gguf_values(const GgufFile& file, Findings& findings, ReadingCount& reading,
                         ThreadPool& pool, ModelCheck& out) {
  for (const GgufTensor& tensor : file.tensors()) reading.expect(tensor.bytes);
  for (const GgufTensor& tensor : file.tensors()) {
    const GgmlTypeInfo& info = ggml_type_info(tensor.type);
    NonFinite found;
    VOLTA_TRY(reading.in_pieces(
        file, tensor.bytes, 4096 * info.block_bytes, [&](std::int64_t begin, std::int64_t length) {
          const std::int64_t first = begin / info.block_bytes * info.block_values;
          const std::int64_t values = length / info.block_bytes * info.block_values;
          const auto read = [&](std::int64_t at, std::span<float> into) {
            file.read_values(tensor, first + at, into);
          };
          found.add(count_non_finite(values, pool, read), first);
          file.release(tensor);
        }));
    ++out.tensors;
    report_non_finite(findings, file_name(file.path()),
                      fmt::format("'{}' {}{}", tensor.name, info.name, to_string(tensor.shape)),
                      found, "values", "element");
  }
  return file.check_unchanged();
}

}  // namespace volta
