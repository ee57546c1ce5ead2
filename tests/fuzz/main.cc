// The one program of all fuzz targets: `fuzz NAME [options of libFuzzer] [corpus folders]`, and
// `fuzz --list`. Knows the targets by the list that CMake makes from the names of the files.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>

#define FUZZ_TARGET(name) extern "C" int fuzz_##name(const std::uint8_t* data, std::size_t size);
#include "fuzz_targets.inc"
#undef FUZZ_TARGET

namespace {

using Target = int (*)(const std::uint8_t*, std::size_t);
struct Entry {
  std::string_view name;
  Target run;
};

constexpr Entry kTargets[] = {
#define FUZZ_TARGET(name) {#name, fuzz_##name},
#include "fuzz_targets.inc"
#undef FUZZ_TARGET
};

Target g_target = nullptr;

}  // namespace

// libFuzzer calls this once, before anything else. The target's name is taken out of the arguments.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  const std::string_view name = *argc > 1 ? (*argv)[1] : "";
  for (const Entry& entry : kTargets) {
    if (name == entry.name) g_target = entry.run;
    if (name == "--list") std::printf("%s\n", entry.name.data());
  }
  if (name == "--list") std::exit(0);
  if (g_target == nullptr) {
    std::fprintf(stderr, "usage: fuzz NAME [options of libFuzzer] [folders]; fuzz --list\n");
    std::exit(2);
  }
  const std::span<char*> arguments(*argv, static_cast<std::size_t>(*argc));
  for (std::size_t i = 1; i + 1 < arguments.size(); ++i) arguments[i] = arguments[i + 1];
  --*argc;
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return g_target(data, size);
}
