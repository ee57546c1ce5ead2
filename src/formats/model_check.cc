#include "formats/model_check.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "formats/gguf/gguf_file.h"
#include "formats/gguf/gguf_model.h"
#include "formats/hub_cache.h"
#include "formats/model_check_parts.h"
#include "formats/model_source.h"

namespace volta {

void Findings::add(Finding::Kind kind, std::string where, std::string what) {
  if (!only_file_.empty()) where = only_file_;
  list_.push_back({kind, std::move(where), std::move(what)});
}

void Findings::invalid(std::string where, std::string what) {
  add(Finding::Kind::kInvalid, std::move(where), std::move(what));
}

void Findings::invalid(std::string where, const Error& error) {
  if (error.code() == ErrorCode::kOutOfMemory) {
    out_of_memory_ = error;
  } else {
    invalid(std::move(where), std::string(error.message()));
  }
}

void Findings::contradiction(std::string where, std::string what) {
  add(Finding::Kind::kContradiction, std::move(where), std::move(what));
}

Status ReadingCount::ask() const {
  if (!go_on_ || go_on_(bytes_, expected_)) return {};
  return fail(ErrorCode::kInterrupted,
              fmt::format("interrupted after {} bytes of weights", bytes_));
}

namespace {

// Checks the files beside the weights.
Status check_settings(const ModelSource& model, const TransformerConfig* config,
                      const ReadingCount& reading, Findings& findings, ModelCheck& out) {
  VOLTA_TRY(out.has_tokenizer, check_tokenizer(model, config, reading, findings));
  check_generation_config(model, config, findings);
  VOLTA_TRY(check_chat_template(model, reading, findings));
  if (model.gguf() == nullptr) check_carried_files(model.path(), findings);
  return {};
}

Status check_folder(const std::string& directory, Findings& findings, ReadingCount& reading,
                    ThreadPool& pool, ModelCheck& out) {
  VOLTA_TRY(const ModelSource model, ModelSource::open(directory));
  const auto config = model.config();
  const TransformerConfig* known = config ? &*config : nullptr;
  if (!config) findings.invalid("config.json", config.error());
  WeightsCheck weights(findings, reading, pool);
  weights.open(directory);
  if (config) weights.check_structure(*config);
  VOLTA_TRY(weights.check_values(known, out));
  return check_settings(model, known, reading, findings, out);
}

Status check_gguf(const std::string& path, Findings& findings, ReadingCount& reading,
                  ThreadPool& pool, ModelCheck& out) {
  const std::string where = file_name(path);
  out.weight_files.push_back(where);
  const auto model = ModelSource::open(path);
  if (!model) {
    if (model.error().code() == ErrorCode::kNotFound) return std::unexpected(model.error());
    findings.invalid(where, model.error());
    return {};  // Nothing else can be read.
  }
  const GgufFile& file = *model->gguf();
  const auto config = gguf_config(file);
  if (config) {
    const auto parameters = find_gguf_parameters(*config, file);
    if (!parameters) findings.invalid(where, parameters.error());
  } else {
    findings.invalid(where, config.error());
  }
  if (Status done = check_gguf_values(file, findings, reading, pool, out); !done) {
    if (done.error().code() != ErrorCode::kInvalidFile) return done;
    findings.invalid(where, done.error());
    return {};  // The checks below would read the changed file.
  }
  return check_settings(*model, config ? &*config : nullptr, reading, findings, out);
}

}  // namespace

std::string_view finding_name(Finding::Kind kind) {
  return kind == Finding::Kind::kInvalid ? "invalid" : "contradiction";
}

Result<ModelCheck> check_model(const std::string& model, ThreadPool& pool,
                               const CheckCallback& go_on) {
  const bool gguf = is_gguf_path(model);
  if (!gguf && !is_directory(model)) {
    if (path_exists(model)) {
      return fail(
          ErrorCode::kInvalidFile,
          fmt::format("'{}' is a file: name the folder that it lies in, or a .gguf file", model));
    }
    return no_model_folder(model);
  }
  ModelCheck out;
  Findings findings(gguf ? file_name(model) : "");
  ReadingCount reading(go_on);
  const auto check = gguf                       ? check_gguf
                     : is_adapter_folder(model) ? check_adapter_folder
                                                : check_folder;
  VOLTA_TRY(check(model, findings, reading, pool, out));
  if (findings.out_of_memory()) return std::unexpected(*findings.out_of_memory());
  out.findings = findings.list();
  out.bytes = reading.bytes();
  return out;
}

}  // namespace volta
