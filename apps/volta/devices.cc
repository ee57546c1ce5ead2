// volta devices: lists the devices of this machine that Volta can use.
#include <fmt/format.h>

#include <vector>

#include "base/cpu.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "command.h"
#include "device/cuda_device.h"
#include "device/device_handle.h"
#include "kernels/cpu/cpu.h"
#include "tuner/open_device.h"

namespace volta::cli {
namespace {

// Every GPU that can be used. One that cannot is named in a warning.
Result<std::vector<DeviceInfo>> list_gpus() {
  std::vector<DeviceInfo> gpus;
  for (int i = 0; i < CudaDevice::count(); ++i) {
    const auto gpu = CudaDevice::create({.index = i});
    if (gpu) {
      gpus.push_back((*gpu)->info());
    } else {
      log(LogLevel::kWarning, gpu.error().message());
    }
  }
  return gpus;
}

Status list_devices(const Globals& globals) {
  VOLTA_TRY(const Output output, parse_output(globals, {Output::kText, Output::kJson}));
  VOLTA_TRY(refuse_unused(globals, kNothingRuns));
  VOLTA_TRY(const DeviceHandle cpu,
            open_device(DeviceOptions{
                .kind = DeviceKind::kCpu, .threads = globals.threads, .simd = {}, .index = 0}));
  const DeviceInfo info = cpu.info();
  const CpuInfo machine = cpu_info();
  VOLTA_TRY(const std::vector<DeviceInfo> gpus, list_gpus());
  const Status cuda = CudaDevice::usable();
  if (output == Output::kText) {
    std::string text =
        fmt::format("{}  {}\n     {}, {}, L2 {} a core, L3 {}, memory {}\n", info.id, info.name,
                    info.isa, counted(info.threads, "thread"), format_bytes(machine.l2_bytes),
                    format_bytes(machine.l3_bytes), format_bytes(info.memory_bytes));
    if (cpu::amx_refused()) {
      text += "     this CPU has AMX, but the system does not permit it to programs\n";
    }
    for (const DeviceInfo& gpu : gpus) {
      text += fmt::format("{}  {}\n     {}, memory {}\n", gpu.id, gpu.name, gpu.isa,
                          format_bytes(gpu.memory_bytes));
    }
    if (!cuda) text += fmt::format("cuda not usable: {}\n", cuda.error().message());
    return print(text);
  }
  JsonWriter json;
  json.begin_object().key("devices").begin_array().begin_object();
  json.field("id", info.id).field("name", info.name).field("isa", info.isa);
  json.field("threads", info.threads).field("memory_bytes", info.memory_bytes);
  json.field("l2_bytes", machine.l2_bytes).field("l3_bytes", machine.l3_bytes);
  json.field("amx_refused", cpu::amx_refused()).end_object();
  for (const DeviceInfo& gpu : gpus) {
    json.begin_object().field("id", gpu.id).field("name", gpu.name).field("isa", gpu.isa);
    json.field("memory_bytes", gpu.memory_bytes).end_object();
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
