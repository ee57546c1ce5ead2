// volta version: which Volta this is.
#include "base/version.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/json.h"
#include "command.h"
#include "device/cpu_device.h"

// CMake defines these for this file only (apps/CMakeLists.txt).
#if !defined(VOLTA_BUILD_TYPE) || !defined(VOLTA_BUILD_FLAGS) || !defined(VOLTA_BUILD_SANITIZERS)
#error "VOLTA_BUILD_TYPE, VOLTA_BUILD_FLAGS and VOLTA_BUILD_SANITIZERS are defined by the build"
#endif

namespace volta::cli {
namespace {

// The compiler and its version, e.g. "g++ 12.2.0".
std::string compiler() {
#ifdef __clang__
  return fmt::format("clang++ {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("g++ {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

#ifdef VOLTA_HAS_CUDA
constexpr bool kHasCuda = true;
#else
constexpr bool kHasCuda = false;
#endif

std::string to_json(const std::string& isa) {
  JsonWriter json;
  json.begin_object().field("version", version()).field("commit", git_hash());
  json.field("isa", isa).field("compiler", compiler()).field("flags", VOLTA_BUILD_FLAGS);
  json.key("features").begin_object().field("build_type", VOLTA_BUILD_TYPE);
  json.field("cuda", kHasCuda).field("sanitizers", VOLTA_BUILD_SANITIZERS).end_object();
  json.end_object();
  return std::move(json).take() + "\n";
}

}  // namespace

void add_version(Command& app, Globals& globals, Action& action) {
  Command* command = app.add_subcommand("version", "print the version and what it was built for");
  command->callback([&globals, &action] {
    action = [&globals]() -> Status {
      VOLTA_TRY(const Output output, parse_output(globals, {Output::kText, Output::kJson}));
      VOLTA_TRY(refuse_unused(globals, kNothingRuns));
      // The instruction set of the kernels: the best available one, or that of VOLTA_SIMD.
      VOLTA_TRY(const auto device, CpuDevice::create({.threads = 1, .simd = {}}));
      const std::string isa = device->info().isa;
      if (output == Output::kText) {
        return print(fmt::format("volta {} ({})\n", version_with_hash(), isa));
      }
      return print(to_json(isa));
    };
  });
}

}  // namespace volta::cli
