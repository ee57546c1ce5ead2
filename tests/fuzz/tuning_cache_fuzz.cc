// Any bytes as a file of tuning results. The hash of the kernels is put in where the text has an
// @, so that seeds outlive the kernels.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/log.h"
#include "tuner/kernels_hash.h"
#include "tuner/tuning_cache.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace tuner = volta::tuner;
  static const bool quiet = [] {
    volta::set_log_callback([](volta::LogLevel, std::string_view) {});
    return true;
  }();
  std::string text(data, data + size);
  if (const std::size_t at = text.find('@'); quiet && at != std::string::npos) {
    text.replace(at, 1, tuner::kernels_hash());
  }
  const tuner::CpuSignature signature = {.vendor = "AuthenticAMD",
                                         .family = 25,
                                         .model = 97,
                                         .stepping = 2,
                                         .caches = {32768, 1048576, 33554432},
                                         .isa = "avx512"};
  const auto entries = tuner::parse_tuning(text, "fuzz", signature);
  if (!entries) return 0;
  for (const tuner::TuningEntry& entry : *entries) {
    if (!volta::cpu::valid_parameters(entry.parameters, entry.simd)) __builtin_trap();
  }
  for (const auto simd : {volta::cpu::Simd::kSse4, volta::cpu::Simd::kAvx2}) {
    if (tuner::to_tuning(*entries, simd).size() > entries->size()) __builtin_trap();
  }
  // What was read is written and read again as the same.
  const std::string again = tuner::tuning_to_json(*entries, signature);
  const auto second = tuner::parse_tuning(again, "again", signature);
  if (!second || *second != *entries) __builtin_trap();
  return 0;
}
