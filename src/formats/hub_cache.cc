#include "formats/hub_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>

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

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
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

}  // namespace

std::optional<HubName> parse_hub_name(std::string_view text) {
  HubName name;
  if (const std::size_t at = text.find('@'); at != std::string_view::npos) {
    name.revision = text.substr(at + 1);
    text = text.substr(0, at);
    if (!is_revision(name.revision)) return std::nullopt;
  }
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  if (!is_name(text.substr(0, slash)) || !is_name(text.substr(slash + 1))) return std::nullopt;
  name.repository = text;
  return name;
}

std::string hub_cache_folder() {
  if (std::string folder = variable("HF_HUB_CACHE"); !folder.empty()) return folder;
  if (const std::string home = variable("HF_HOME"); !home.empty()) return join_path(home, "hub");
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) {
    return join_path(cache, "huggingface/hub");
  }
  const std::string home = variable("HOME");
  return home.empty() ? "" : join_path(home, ".cache/huggingface/hub");
}

Result<std::string> find_in_hub_cache(const HubName& name, const std::string& cache) {
  std::string folder = "models--" + name.repository;
  folder.replace(folder.find('/'), 1, "--");
  const std::string model = join_path(cache, folder);
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
    return absent(name, fmt::format("the Hugging Face cache has {}, but not its revision {}",
                                    name.repository, name.revision));
  }
  std::string snapshot = join_path(snapshots, commit);
  if (!path_exists(join_path(snapshot, "config.json"))) {
    return absent(name, fmt::format("{} is in the Hugging Face cache without its config.json (its "
                                    "download may have been interrupted): '{}'",
                                    name.repository, snapshot));
  }
  return snapshot;
}

Result<std::string> find_model_path(const std::string& path) {
  if (path_exists(path)) return path;
  const auto name = parse_hub_name(path);
  if (!name) return path;
  return find_in_hub_cache(*name, hub_cache_folder());
}

}  // namespace volta
