#include "train/open_model.h"

#include "formats/gguf/gguf_file.h"
#include "formats/hub_cache.h"
#include "train/run_folder.h"

namespace volta {

Result<ModelSource> open_model(const std::string& model, const Interruption& interrupted) {
  if (is_gguf_path(model)) return ModelSource::open(model);
  VOLTA_TRY(const std::string place, find_model_path(model));
  VOLTA_TRY(const std::string folder, find_model_folder(place, interrupted));
  return ModelSource::open(folder);
}

}  // namespace volta
