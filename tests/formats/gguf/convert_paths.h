// The conversions between GGUF files and folders, of models that are named by their paths.
#pragma once

#include <optional>
#include <string>

#include "formats/gguf/gguf_convert.h"
#include "formats/model_source.h"

namespace volta::test {

inline Status gguf_to_folder(const std::string& gguf, const std::string& directory, DType dtype,
                             bool replace, ConvertProgress progress) {
  VOLTA_TRY(const ModelSource source, ModelSource::open(gguf));
  return volta::gguf_to_folder(source, directory, dtype, replace, progress);
}

inline Result<bool> folder_to_gguf(const std::string& directory, const std::string& gguf,
                                   std::optional<GgmlType> type, bool replace,
                                   ConvertProgress progress) {
  VOLTA_TRY(const ModelSource source, ModelSource::open(directory));
  return volta::folder_to_gguf(source, gguf, type, replace, progress);
}

}  // namespace volta::test
