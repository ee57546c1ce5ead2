#include "formats/hub_cache.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/file.h"
#include "base/text.h"

namespace volta {
namespace {

// A file in refs/ holds one commit of 40 hexadecimal digits. A much longer file is not a ref.
constexpr std::int64_t kMaxRefBytes = 1024;

bool is_name_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
         c == '_' || c == '.';
}

// Whether `text` may name one folder: hidden folders, "." and ".." are not names.
bool is_name(std::string_view text) {
  return !text.empty() && text.front() != '.' && text.front() != '-' &&
         std::ranges::all_of(text, is_name_character);
}

// A revision is a name, or several with slashes between them ("refs/pr/1").
bool is_revision(std::string_view text) {
  while (true) {
    const std::size_t slash = text.find('/');
    if (!is_name(text.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    text.remove_prefix(slash + 1);
  }
}

// "ORGANISATION/NAME", or "NAME" as the oldest models of the hub are called, with or without
// "@REVISION".
std::optional<HubName> parse_name(std::string_view text) {
  HubName name;
  if (const std::size_t at = text.find('@'); at != std::string_view::npos) {
    name.revision = text.substr(at + 1);
    text = text.substr(0, at);
    if (!is_revision(name.revision)) return std::nullopt;
  }
  const std::size_t slash = text.find('/');
  if (!is_name(text.substr(0, slash))) return std::nullopt;
  if (slash != std::string_view::npos && !is_name(text.substr(slash + 1))) return std::nullopt;
  name.repository = text;
  return name;
}

// The folder of a model in the cache.
std::string folder_of(const HubName& name) {
  std::string folder = "models--" + name.repository;
  if (const std::size_t slash = folder.find('/'); slash != std::string::npos) {
    folder.replace(slash, 1, "--");
  }
  return folder;
}

std::string download_command(const HubName& name) {
  const std::string revision = name.revision == "main" ? "" : " --revision " + name.revision;
  return fmt::format("hf download {}{}", name.repository, revision);
}

std::unexpected<Error> absent(const HubName& name, std::string_view what) {
  return fail(ErrorCode::kNotFound,
              fmt::format("{}; download it with `{}` (Volta downloads nothing), or name the folder "
                          "of a model",
                          what, download_command(name)));
}

// Files that Volta reads. A repository may hold others, such as weights in a second format.
bool is_model_file(std::string_view name) {
  constexpr std::array<std::string_view, 7> kNames = {
      "config.json",        "generation_config.json", "model.safetensors.index.json",
      "tokenizer.json",     "tokenizer_config.json",  "chat_template.json",
      "chat_template.jinja"};
  return std::ranges::find(kNames, name) != kNames.end() ||
         (name.starts_with("model") && name.ends_with(".safetensors"));
}

// Clients download a file to blobs/HASH.incomplete (with some, a random part stands before the
// ending), and give it its name in the snapshot when it is complete.
bool has_unfinished_downloads(const std::string& model) {
  const auto blobs = list_directory(join_path(model, "blobs"));
  return blobs && std::ranges::any_of(
                      *blobs, [](std::string_view name) { return name.ends_with(".incomplete"); });
}

// The files of a snapshot that half a download or a damaged cache lacks, with what is known of
// each: links that lead nowhere; and, if a download is unfinished, weights or tokenizers that are
// not there at all. (Without one, a model may have been published without them.)
std::vector<std::string> missing_files(const std::string& model, const std::string& snapshot) {
  std::vector<std::string> missing;
  const auto names = list_directory(snapshot);
  if (!names) return missing;
  for (const std::string& name : *names) {
    const std::string path = join_path(snapshot, name);
    if (!is_model_file(name) || !is_link(path) || path_exists(path)) continue;
    const auto target = read_link(path);
    missing.push_back(
        fmt::format("{} (a link to '{}', which is not there)", name, target ? *target : "?"));
  }
  if (!has_unfinished_downloads(model)) return missing;
  const auto has = [&](std::string_view name) {
    return is_link(join_path(snapshot, name)) || path_exists(join_path(snapshot, name));
  };
  if (!has("model.safetensors") && !has("model.safetensors.index.json")) {
    missing.emplace_back("model.safetensors");
  }
  return missing;
}

std::string lacks(const HubName& name, const std::vector<std::string>& files, std::string_view note,
                  const std::string& snapshot) {
  return fmt::format("{} in the Hugging Face cache lacks {}{}: '{}'", name.repository,
                     fmt::join(files, ", "), note, snapshot);
}

// Refuses a snapshot whose download was interrupted.
Status check_snapshot(const HubName& name, const std::string& model, const std::string& snapshot) {
  const std::string_view unfinished =
      has_unfinished_downloads(model) ? ", and a download is unfinished" : "";
  if (const auto missing = missing_files(model, snapshot); !missing.empty()) {
    return absent(name, lacks(name, missing, unfinished, snapshot));
  }
  if (path_exists(join_path(snapshot, "config.json"))) return {};
  return absent(name, fmt::format("{} is in the Hugging Face cache without its config.json (its "
                                  "download may have been interrupted): '{}'",
                                  name.repository, snapshot));
}

// The repository and revision of a snapshot folder in the cache. The revision is "main" if
// refs/main names this commit, otherwise the commit itself. nullopt if the folder is not such a
// snapshot.
std::optional<HubName> name_of_snapshot(const std::string& folder) {
  const auto snapshot = real_path(folder);
  if (!snapshot) return std::nullopt;
  const std::string snapshots = parent_path(*snapshot);
  const std::string model = parent_path(snapshots);
  constexpr std::string_view kPrefix = "models--";
  std::string repository = file_name(model);
  if (file_name(snapshots) != "snapshots" || !repository.starts_with(kPrefix)) return std::nullopt;
  repository.erase(0, kPrefix.size());
  const std::size_t separator = repository.find("--");
  if (separator != std::string::npos) repository.replace(separator, 2, "/");
  const std::string commit = file_name(*snapshot);
  auto name = parse_name(repository + "@" + commit);
  const auto newest = read_text_file_if_there(join_path(model, "refs/main"), kMaxRefBytes);
  if (name && newest && *newest && (*newest)->starts_with(commit)) name->revision = "main";
  return name;
}

}  // namespace

std::optional<HubName> parse_hub_name(std::string_view text) {
  auto name = parse_name(text);
  return name && name->repository.contains('/') ? name : std::nullopt;
}

std::string hub_cache_folder() {
  if (const auto folder = environment("HF_HUB_CACHE"); !folder.empty()) return std::string(folder);
  if (const auto home = environment("HF_HOME"); !home.empty()) return join_path(home, "hub");
  if (const auto cache = environment("XDG_CACHE_HOME"); !cache.empty()) {
    return join_path(cache, "huggingface/hub");
  }
  const std::string_view home = environment("HOME");
  return home.empty() ? "" : join_path(home, ".cache/huggingface/hub");
}

Result<std::string> find_in_hub_cache(const HubName& name, const std::string& cache) {
  const std::string model = join_path(cache, folder_of(name));
  if (cache.empty() || !path_exists(model)) {
    return absent(name, fmt::format("there is no folder '{}', and no model of this name in the "
                                    "Hugging Face cache ('{}')",
                                    name.repository, cache));
  }
  std::string commit = name.revision;
  const std::string ref = join_path(model, "refs/" + name.revision);
  VOLTA_TRY(const auto text, read_text_file_if_there(ref, kMaxRefBytes));
  if (text) {
    commit = text->substr(0, text->find_last_not_of(" \r\n") + 1);
    if (!is_name(commit)) {
      return fail(ErrorCode::kInvalidFile,
                  fmt::format("{}: expected the name of a commit; download the model again with "
                              "`{}`",
                              ref, download_command(name)));
    }
  }
  const std::string snapshots = join_path(model, "snapshots");
  // A revision without a file in refs/ is a commit itself. The name of a commit has no slash.
  if (commit.find('/') != std::string::npos || !path_exists(join_path(snapshots, commit))) {
    return absent(
        name, fmt::format("the Hugging Face cache has {}, but not its revision {}{}",
                          name.repository, name.revision,
                          has_unfinished_downloads(model) ? " (a download is unfinished)" : ""));
  }
  std::string snapshot = join_path(snapshots, commit);
  VOLTA_TRY(check_snapshot(name, model, snapshot));
  return snapshot;
}

std::string name_or_folder(const std::string& folder) {
  const auto name = name_of_snapshot(folder);
  if (!name || name->revision != "main") return folder;
  const auto found = find_in_hub_cache(*name, hub_cache_folder());
  return found && is_same_place(*found, folder) ? name->repository : folder;
}

std::vector<std::string> other_snapshots(const std::string& folder) {
  std::vector<std::string> others;
  const auto name = name_of_snapshot(folder);
  const auto snapshot = real_path(folder);
  if (!name || !snapshot) return others;
  const auto commits = list_directory(parent_path(*snapshot));
  if (!commits) return others;
  for (const std::string& commit : *commits) {
    if (commit != file_name(*snapshot)) others.push_back(name->repository + "@" + commit);
  }
  return others;
}

std::unexpected<Error> missing_files_error(Error error, const std::string& folder,
                                           const std::vector<std::string>& files) {
  const auto name =
      error.code() == ErrorCode::kNotFound ? name_of_snapshot(folder) : std::optional<HubName>();
  if (!name) return std::unexpected(std::move(error));
  // No index lists these, so the model may have been published without them.
  const bool by_name_only = files.size() == 1 && (files.front() == "tokenizer.json" ||
                                                  files.front() == "model.safetensors");
  const std::string_view note =
      by_name_only ? " (if the repository has none, Volta cannot read it)" : "";
  return absent(*name, lacks(*name, files, note, folder));
}

std::unexpected<Error> no_model_folder(const std::string& path) {
  std::string message = fmt::format("no model folder at '{}'", path);
  // "gpt2" or "gpt2@main": with an organisation before it, it would be a name on the hub.
  const std::string whole = "ORGANISATION/" + path;
  if (const auto name = parse_hub_name(whole)) {
    message += fmt::format(
        ", and no model of this name in the Hugging Face cache; nearly all have an organisation in "
        "their name, as '{}' (`{}` downloads it; Volta downloads nothing)",
        whole, download_command(*name));
  }
  return fail(ErrorCode::kNotFound, std::move(message));
}

Result<std::string> find_model_path(const std::string& path) {
  if (path_exists(path)) return path;
  const auto name = parse_name(path);
  if (!name) return path;
  const std::string cache = hub_cache_folder();
  const bool organised = name->repository.contains('/');
  if (!organised && !path_exists(join_path(cache, folder_of(*name)))) return path;
  return find_in_hub_cache(*name, cache);
}

}  // namespace volta
