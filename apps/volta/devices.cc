// volta devices: lists the devices of this machine that Volta can use.
#include <fmt/format.h>

#include "base/cpu.h"
#include "base/json.h"
#include "base/text.h"
#include "command.h"
#include "device/device_handle.h"
#include "kernels/cpu/cpu.h"
#include "tuner/open_device.h"

namespace volta::cli {
namespace {

Status list_devices(const Globals& globals) {
  VOLTA_TRY(const Output output, parse_output(globals, {Output::kText, Output::kJson}));
  VOLTA_TRY(refuse_unused(globals, kNothingRuns));
  VOLTA_TRY(const DeviceHandle cpu,
            open_device(DeviceOptions{
                .kind = DeviceKind::kCpu, .threads = globals.threads, .simd = {}, .index = 0}));
  const DeviceInfo info = cpu.info();
  const CpuInfo machine = cpu_info();
  const auto cuda = DeviceHandle::create(DeviceKind(DeviceKind::kCuda));
  if (output == Output::kText) {
    std::string text =
        fmt::format("{}  {}\n     {}, {} threads, L2 {} a core, L3 {}, memory {}\n", info.id,
                    info.name, info.isa, info.threads, format_bytes(machine.l2_bytes),
                    format_bytes(machine.l3_bytes), format_bytes(info.memory_bytes));
    if (cpu::amx_refused()) {
      text += "     this CPU has AMX, but the system does not permit it to programs\n";
    }
    text += cuda ? fmt::format("{}  {}\n", cuda->info().id, cuda->info().name)
                 : fmt::format("cuda not usable: {}\n", cuda.error().message());
    return print(text);
  }
  JsonWriter json;
  json.begin_object().key("devices").begin_array().begin_object();
  json.field("id", info.id).field("name", info.name).field("isa", info.isa);
  json.field("threads", info.threads).field("memory_bytes", info.memory_bytes);
  json.field("l2_bytes", machine.l2_bytes).field("l3_bytes", machine.l3_bytes);
  json.field("amx_refused", cpu::amx_refused()).end_object();
  if (cuda) {
    json.begin_object().field("id", cuda->info().id).field("name", cuda->info().name);
    json.field("isa", cuda->info().isa).end_object();
  }
  json.end_array();
  if (!cuda) json.field("cuda", cuda.error().message());
  json.end_object();
  return print(json.text() + "\n");
}

}  // namespace

void add_devices(Command& app, Globals& globals, Action& action) {
  Command* command = app.add_subcommand("devices", "list the devices Volta can run on here");
  command->callback([&] { action = [&globals] { return list_devices(globals); }; });
}

}  // namespace volta::cli
