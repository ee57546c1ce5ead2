// Volta's matrix product against OpenBLAS, BLIS, oneDNN and libxsmm: same shapes, one process, in
// turn. Prints the ratio to the best of the others shape by shape, and the share of the peak and of
// the memory's read speed measured in the same run. bench/peers/run installs and builds what it
// needs; what is missing is left out.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "comparison.h"
#include "libraries.h"
#include "report.h"
#include "shapes.h"

namespace {

struct Options {
  int threads = 1;
  int rounds = 9;
  std::string type = "f32";
  std::string output = "text";
  std::vector<std::string> weights;
  peers::ShapeOptions shapes;
};

void add_options(CLI::App& app, Options& o) {
  app.add_option("--type", o.type, "f32, bf16 or int8")
      ->check(CLI::IsMember({"f32", "bf16", "int8"}));
  app.add_option("--threads", o.threads)->check(CLI::Range(1, 1024));
  app.add_option("--rounds", o.rounds, "turns of about 10 ms each (default 9)")
      ->check(CLI::Range(1, 10000));
  app.add_option("--set", o.shapes.set, "squares, rows or all")
      ->check(CLI::IsMember({"squares", "rows", "all"}));
  app.add_option("--sizes", o.shapes.sizes, "of squares: 64,512")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 16));
  app.add_option("--rows", o.shapes.rows, "M: 1,4")->delimiter(',')->check(CLI::Range(1, 1 << 20));
  app.add_option("--weights", o.weights, "K x N: 768x3072,4096x4096")->delimiter(',');
  app.add_option("--state", o.shapes.state, "of the weights: hot, cold or both")
      ->check(CLI::IsMember({"hot", "cold", "both"}));
  app.add_option("--output", o.output, "text, csv or json")
      ->check(CLI::IsMember({"text", "csv", "json"}));
}

peers::Type type_of(const std::string& name) {
  for (const peers::Type type : peers::kTypes) {
    if (name == peers::type_name(type)) return type;
  }
  return peers::Type::kF32;
}

peers::Output output_of(const std::string& name) {
  return name == "csv"    ? peers::Output::kCsv
         : name == "json" ? peers::Output::kJson
                          : peers::Output::kText;
}

// Volta first.
std::vector<std::unique_ptr<peers::Library>> make_libraries(peers::Type type, int threads) {
  const peers::LibraryOptions options{.threads = threads};
  std::vector<std::unique_ptr<peers::Library>> libraries;
  std::string error;
  libraries.push_back(peers::make_volta(options, error));
  if (libraries.front() == nullptr) {
    std::fprintf(stderr, "%s\n", error.c_str());
    std::exit(5);
  }
  const auto add = [&](std::unique_ptr<peers::Library> library) {
    if (library != nullptr && library->multiplies(type)) libraries.push_back(std::move(library));
  };
  for (auto& onednn : peers::make_onednns(options)) add(std::move(onednn));
  for (const auto make : {peers::make_openblas, peers::make_blis, peers::make_libxsmm}) {
    add(make(options));
  }
  return libraries;
}

peers::Comparison compare(const std::vector<std::unique_ptr<peers::Library>>& libraries,
                          const peers::Case& sizes, peers::Type type, int rounds) {
  peers::Problem problem(sizes, type);
  peers::Comparison comparison{sizes, {}, 0};
  std::vector<peers::Contender> contenders;
  for (const auto& library : libraries) {
    library->add_contenders(problem, contenders);
    if (comparison.own == 0) comparison.own = contenders.size();
  }
  comparison.timings = peers::measure(problem, contenders, rounds);
  return comparison;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Volta's matrix product beside other libraries");
  Options options;
  add_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  for (const std::string& text : options.weights) {
    if (peers::parse_weight(text, options.shapes.weights.emplace_back())) continue;
    std::fprintf(stderr, "--weights %s: write K and N as 768x3072\n", text.c_str());
    return 2;
  }
  const peers::Type type = type_of(options.type);
  const auto libraries = make_libraries(type, options.threads);
  auto pool = volta::ThreadPool::create(options.threads);
  if (!pool) return 5;
  peers::Setting setting{type, options.threads, options.rounds, {}, {}};
  for (const auto& library : libraries) setting.libraries.push_back(library->describe());
  setting.peaks = peers::measure_peaks(*pool);
  peers::Report report(output_of(options.output), setting);
  report.begin(peers::measure_memory(*pool));
  for (const peers::Case& sizes : peers::cases(options.shapes)) {
    report.add(compare(libraries, sizes, type, options.rounds));
  }
  report.end(peers::measure_memory(*pool));
  return 0;
}
