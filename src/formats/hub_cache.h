// The local cache of the Hugging Face hub, where the hub's clients put the files of a model that
// was downloaded as "ORGANISATION/NAME". Volta itself never downloads anything.
// The layout: models--ORGANISATION--NAME/refs/REVISION holds the name of a commit, and the folder
// models--ORGANISATION--NAME/snapshots/COMMIT holds the files of that commit
// (https://huggingface.co/docs/huggingface_hub/guides/manage-cache).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace volta {

/// A model's name on the hub.
struct HubName {
  std::string repository;         ///< "ORGANISATION/NAME", or "gpt2" and the like
  std::string revision = "main";  ///< A branch, a tag or a commit.
};

/// Parses "ORGANISATION/NAME" or "ORGANISATION/NAME@REVISION"; nullopt for a text that cannot be
/// the name of a model on the hub.
std::optional<HubName> parse_hub_name(std::string_view text);

/// The folder of the cache, found in the same way as the hub's own clients find it: HF_HUB_CACHE,
/// else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub. Empty
/// without HOME.
std::string hub_cache_folder();

/// The folder of a model in `cache` (see hub_cache_folder()). kNotFound, with the command that
/// downloads the model, when the cache lacks the model, the revision, or (after an interrupted
/// download) the config.json, a link's target, or weights and tokenizer of an unfinished download.
/// kInvalidFile when a revision's file does not hold the name of a commit.
Result<std::string> find_in_hub_cache(const HubName& name, const std::string& cache);

/// The name of the model of which `folder` is the newest snapshot in the cache, such as
/// "ORGANISATION/NAME": it also means this model on another machine. `folder` itself if it is none.
std::string name_or_folder(const std::string& folder);

/// The other snapshots that the cache has of the model of which `folder` is one, each as
/// "ORGANISATION/NAME@COMMIT". Empty for other folders.
std::vector<std::string> other_snapshots(const std::string& folder);

/// The error for a model folder that lacks `files` where `error` (kNotFound) came from opening
/// them: for a snapshot of the cache, one with their names and the command that downloads them.
/// `error` itself for other folders and other codes.
std::unexpected<Error> missing_files_error(Error error, const std::string& folder,
                                           const std::vector<std::string>& files);

/// The error for `path` where there is no model folder. If `path` is a single word, such as "gpt2",
/// the message also says how models of the hub are named and downloaded.
std::unexpected<Error> no_model_folder(const std::string& path);

/// Returns `path` itself if it exists or if it cannot be a name on the hub; else the folder of the
/// model of that name in the cache. A name without an organisation ("gpt2") that the cache does not
/// have is returned unchanged.
Result<std::string> find_model_path(const std::string& path);

}  // namespace volta
