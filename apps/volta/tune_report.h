// The output of `volta tune`: the shapes that it tuned, and the stored ones.
#pragma once

#include <string>
#include <vector>

#include "tuner/search.h"
#include "tuner/tuning_cache.h"

namespace volta::cli {

/// The result of tuning one shape.
struct TunedShape {
  tuner::TuningEntry entry;
  tuner::SearchResult result;
  std::string use = {};  ///< As in ShapeToTune.
};

/// A run of the tuner.
struct TuneReport {
  std::string isa;
  int threads = 1;
  std::string file;  ///< Where the results are stored; empty when storing failed.
  std::vector<TunedShape> shapes;

  /// The geometric mean of the gains of all shapes.
  double mean_gain() const;
};

std::string to_text(const TuneReport& report);
std::string to_json(const TuneReport& report);
std::string to_csv(const TuneReport& report);

/// The entries of the tuning file at `path`.
std::string entries_to_text(const std::vector<tuner::TuningEntry>& entries,
                            const std::string& path);
std::string entries_to_csv(const std::vector<tuner::TuningEntry>& entries);

/// "128 x 768 x 3072 bf16", "... bf16 * bf16" where a is not f32, "... plain", "... plain a^T"
std::string name_of(const cpu::MatMulShape& shape);

}  // namespace volta::cli
