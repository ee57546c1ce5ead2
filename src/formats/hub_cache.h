// The local cache of the Hugging Face hub: where the files of a model lie that its clients have
// downloaded as "ORGANISATION/NAME". Volta itself never downloads anything.
// The layout: models--ORGANISATION--NAME/refs/REVISION holds the name of a commit, and
// models--ORGANISATION--NAME/snapshots/COMMIT the files of it
// (https://huggingface.co/docs/huggingface_hub/guides/manage-cache).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace volta {

/// A model's name on the hub.
struct HubName {
  std::string repository;         ///< "ORGANISATION/NAME"
  std::string revision = "main";  ///< A branch, a tag or a commit.
};

/// Reads "ORGANISATION/NAME" or "ORGANISATION/NAME@REVISION"; nothing for a text that cannot be
/// the name of a model on the hub.
std::optional<HubName> parse_hub_name(std::string_view text);

/// The folder of the cache, as the hub's own clients find it: HF_HUB_CACHE, else HF_HOME/hub, else
/// XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub. Empty where there is no HOME.
std::string hub_cache_folder();

/// The folder of a model in `cache` (of hub_cache_folder()). kNotFound, with the command that
/// downloads it, where the model or its revision is not in the cache or its config.json is not
/// there (yet); kInvalidFile where the file of a revision does not hold the name of a commit.
Result<std::string> find_in_hub_cache(const HubName& name, const std::string& cache);

/// `path` itself if something is there or if it cannot be a name on the hub, else the folder of the
/// model of that name in the cache.
Result<std::string> find_model_path(const std::string& path);

}  // namespace volta
