// volta version: which Volta this is.
#include "base/version.h"

#include <fmt/format.h>

#include "base/json.h"
#include "command.h"
#include "device/cpu_device.h"

namespace volta::cli {

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
      JsonWriter json;
      json.begin_object().field("version", version()).field("commit", git_hash());
      json.field("isa", isa).end_object();
      return print(json.text() + "\n");
    };
  });
}

}  // namespace volta::cli
