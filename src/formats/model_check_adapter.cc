// The part of check_model() for the folder of a LoRA adapter.
#include <utility>

#include "base/file.h"
#include "formats/adapter.h"
#include "formats/model_check_parts.h"
#include "nn/lora.h"

namespace volta {
namespace {

constexpr std::int64_t kMaxAdapterConfigBytes = std::int64_t{16} << 20;

// The adapter's settings; nullopt when they are invalid.
std::optional<LoraConfig> check_config(const std::string& directory, Findings& findings) {
  const std::string where(kAdapterConfigFile);
  const std::string path = join_path(directory, where);
  const auto text = read_text_file(path, kMaxAdapterConfigBytes);
  if (!text) {
    findings.invalid(where, text.error());
    return std::nullopt;
  }
  auto lora = parse_adapter_config(*text, path);
  if (!lora) {
    findings.invalid(where, lora.error());
    return std::nullopt;
  }
  if (const auto name = adapter_base_name(directory); !name) {
    findings.invalid(where, name.error());
    return std::nullopt;
  }
  return *std::move(lora);
}

}  // namespace

bool is_adapter_folder(const std::string& directory) {
  return !path_exists(join_path(directory, "config.json")) &&
         path_exists(join_path(directory, kAdapterConfigFile));
}

Status check_adapter_folder(const std::string& directory, Findings& findings, ReadingCount& reading,
                            ThreadPool& pool, ModelCheck& out) {
  out.adapter = true;
  const auto lora = check_config(directory, findings);
  const std::string weights(kAdapterWeightsFile);
  auto file = SafetensorsFile::open(join_path(directory, weights));
  if (!file) {
    findings.invalid(weights, file.error());
    return {};
  }
  if (lora) {
    for (std::string& flaw : find_adapter_flaws(*lora, *file)) {
      findings.invalid(weights, std::move(flaw));
    }
  }
  WeightsCheck check(findings, reading, pool);
  check.add(*std::move(file));
  return check.check_values(nullptr, out);
}

}  // namespace volta
