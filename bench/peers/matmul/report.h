// Writes comparisons as they come: lines for people, CSV, or one JSON object.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "comparison.h"
#include "machine.h"

namespace peers {

enum class Output { kText, kCsv, kJson };

/// What the report says once.
struct Setting {
  Type type = Type::kF32;
  int threads = 1;
  int rounds = 0;
  std::vector<std::string> libraries;
  std::vector<Peak> peaks;
};

class Report {
 public:
  Report(Output output, Setting setting) : output_(output), setting_(std::move(setting)) {}

  void begin(const Memory& before);
  void add(const Comparison& comparison);
  /// The means, and the memory as it is now.
  void end(const Memory& after);

 private:
  /// Volta's share of the peak of this type; the peak of f32 where the CPU has none for it.
  const Peak& peak() const;
  void add_text(const Comparison& comparison) const;
  void add_csv(const Comparison& comparison) const;
  void add_json(const Comparison& comparison);
  void end_text(const Memory& after) const;

  Output output_;
  Setting setting_;
  Memory before_;
  Mean packed_, plain_;
  std::map<std::pair<std::int64_t, bool>, Mean> by_rows_;  ///< (M, cold) of products of rows.
  volta::JsonWriter json_{1};
};

}  // namespace peers
