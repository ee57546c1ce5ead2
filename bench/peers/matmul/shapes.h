// The products that are compared, and how a command line picks some of them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "problem.h"

namespace peers {

struct ShapeOptions {
  std::string set = "all";                                     ///< squares, rows or all.
  std::vector<std::int64_t> sizes;                             ///< Of squares; empty: all.
  std::vector<std::int64_t> rows;                              ///< M; empty: all.
  std::vector<std::pair<std::int64_t, std::int64_t>> weights;  ///< K x N; empty: all.
  std::string state = "both";                                  ///< hot, cold or both.
};

/// Squares 64 to 2048, always hot; rows times the weights of usual models, hot and cold.
std::vector<Case> cases(const ShapeOptions& options);

/// "768x3072" as K and N; false for anything else.
bool parse_weight(const std::string& text, std::pair<std::int64_t, std::int64_t>& weight);

}  // namespace peers
