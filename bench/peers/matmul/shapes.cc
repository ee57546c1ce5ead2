#include "shapes.h"

#include <cstdio>

namespace peers {

std::vector<Case> cases(const ShapeOptions& options) {
  std::vector<std::int64_t> sizes = options.sizes, rows = options.rows;
  auto weights = options.weights;
  if (sizes.empty()) sizes = {64, 128, 256, 512, 768, 1024, 2048};
  if (rows.empty()) rows = {1, 2, 4, 8, 16, 32, 128, 512};
  if (weights.empty()) {
    weights = {{768, 3072}, {768, 2304}, {3072, 768}, {2048, 5632}, {4096, 4096}, {768, 50257}};
  }
  std::vector<Case> all;
  if (options.set != "rows") {
    for (const std::int64_t n : sizes) all.push_back({n, n, n, false});
  }
  if (options.set == "squares") return all;
  for (const auto& [k, n] : weights) {
    for (const std::int64_t m : rows) {
      if (options.state != "cold") all.push_back({m, k, n, false});
      if (options.state != "hot") all.push_back({m, k, n, true});
    }
  }
  return all;
}

bool parse_weight(const std::string& text, std::pair<std::int64_t, std::int64_t>& weight) {
  long k = 0, n = 0;
  int used = 0;
  if (std::sscanf(text.c_str(), "%7ldx%7ld%n", &k, &n, &used) != 2) return false;
  weight = {k, n};
  return static_cast<std::size_t>(used) == text.size() && k > 0 && n > 0;
}

}  // namespace peers
