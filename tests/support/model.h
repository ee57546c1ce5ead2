// Short forms of ModelSource for tests: one part of the model at a path.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/result.h"
#include "device/device.h"
#include "formats/model_source.h"

namespace volta::test {

inline Result<Transformer> load_model(const std::string& path, std::shared_ptr<Device> device,
                                      const WeightOptions& options = {}) {
  VOLTA_TRY(const ModelSource source, ModelSource::open(path));
  return source.load(std::move(device), options);
}
inline Result<TransformerConfig> load_config(const std::string& path) {
  VOLTA_TRY(const ModelSource source, ModelSource::open(path));
  return source.config();
}
inline Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const std::string& path) {
  VOLTA_TRY(const ModelSource source, ModelSource::open(path));
  return source.tokenizer();
}
inline Result<ChatTemplate> load_chat_template(const std::string& path) {
  VOLTA_TRY(const ModelSource source, ModelSource::open(path));
  return source.chat_template();
}
inline Result<GenerationConfig> load_generation_config(const std::string& path,
                                                       std::int64_t vocab_size) {
  VOLTA_TRY(const ModelSource source, ModelSource::open(path));
  return source.generation_config(vocab_size);
}

}  // namespace volta::test
