// peers_machine [--threads N]: what this machine can do at most, as JSON; for scripts that compare
// programs and want to say how near each comes.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/cpu.h"
#include "machine.h"

int main(int argc, char** argv) {
  const bool asked = argc == 3 && std::string_view(argv[1]) == "--threads";
  const int threads = asked ? std::atoi(argv[2]) : 1;
  auto pool = volta::ThreadPool::create(threads);
  if (!pool || threads < 1 || (argc != 1 && !asked)) {
    std::fprintf(stderr, "usage: peers_machine [--threads N]\n");
    return 2;
  }
  volta::JsonWriter json;
  json.begin_object().field("cpu", volta::cpu_info().model).field("threads", threads);
  json.key("memory");
  to_json(json, peers::measure_memory(*pool));
  json.key("peaks").begin_object();
  for (const peers::Peak& peak : peers::measure_peaks(*pool)) {
    json.key(peers::type_name(peak.type)).begin_object();
    json.field("instruction", peak.instruction).field("gops", peak.gops).end_object();
  }
  json.end_object().end_object();
  std::puts(json.text().c_str());
  return 0;
}
