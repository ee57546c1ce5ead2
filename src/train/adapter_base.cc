#include "train/adapter_base.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/log.h"
#include "io/adapter.h"
#include "train/checkpoint.h"

namespace volta {

bool is_path_of_base(const std::string& base, const std::string& model_path) {
  if (is_same_place(base, model_path)) return true;
  const std::string name = file_name(base);
  const std::string in_cache = fmt::format("--{}", name);
  for (std::string path = model_path; path != "." && path != "/"; path = parent_path(path)) {
    const std::string folder = file_name(path);
    if (folder == name || (folder.starts_with("models--") && folder.ends_with(in_cache))) {
      return true;
    }
  }
  const std::string file = file_name(model_path);
  return file.ends_with(".gguf") && file.starts_with(name + ".");
}

Status check_adapter_base(const std::string& folder, const Transformer& model,
                          const std::string& model_path) {
  VOLTA_TRY(const auto base, recorded_base(folder));
  if (base) {
    VOLTA_TRY(const std::string hash, weights_hash(model));
    if (hash == base->xxh3) return {};
    return fail(ErrorCode::kMismatch,
                fmt::format("the adapter {} was trained on other weights (those of {}, XXH3 {}) "
                            "than {} has (XXH3 {}): give it its own base model, or use it on this "
                            "one all the same with --any-base",
                            folder, base->path, base->xxh3, model_path, hash));
  }
  VOLTA_TRY(const std::string name, adapter_base_name(folder));
  if (!name.empty() && !is_path_of_base(name, model_path)) {
    log(LogLevel::kWarning,
        fmt::format(
            "the adapter {} names '{}' as its base model; {} may be another one (--any-base "
            "leaves out this warning)",
            folder, name, model_path));
  }
  return {};
}

}  // namespace volta
