#include "problem.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace peers {
namespace {

std::uint32_t next_random(std::uint32_t& seed) {
  seed = seed * 1664525u + 1013904223u;
  return seed >> 8;
}

void fill(std::span<float> values, std::uint32_t seed) {
  for (float& value : values) value = static_cast<float>(next_random(seed)) / (1 << 24) - 0.5f;
}

std::int64_t bytes_of(Type type) { return type == Type::kF32 ? 4 : type == Type::kBf16 ? 2 : 1; }

// The largest error of one term, to be multiplied by sqrt(k): far above rounding, far below a
// product that is wrong.
double tolerance(Type type) {
  return type == Type::kF32 ? 1e-4 : type == Type::kBf16 ? 1e-3 : 5e-3;
}

}  // namespace

Block::Block(std::int64_t bytes) {
  auto made = volta::try_allocate(bytes);
  if (!made) {
    std::fprintf(stderr, "%s\n", made.error().message().c_str());
    std::exit(4);
  }
  bytes_ = *std::move(made);
}

Problem::Problem(const Case& its_case, Type its_type)
    : case_(its_case),
      type_(its_type),
      a_(its_case.m * its_case.k * 4),
      b_(its_case.k * its_case.n * 4),
      y_(its_case.m * its_case.n * 4) {
  constexpr std::int64_t kNoCache = std::int64_t{256} << 20;
  const std::int64_t bytes = case_.k * case_.n * bytes_of(type_);
  if (case_.cold) copies_ = std::max<std::int64_t>(2, kNoCache / bytes + 1);
  fill(a(), 99);
  fill(b(), 1);
}

std::span<float> Problem::plain_copy(std::int64_t i) {
  while (std::ssize(plain_) < copies_) {
    Block& copy = plain_.emplace_back(case_.k * case_.n * 4);
    std::ranges::copy(b(), copy.floats().begin());
  }
  return plain_[static_cast<std::size_t>(i)].floats();
}

bool right_at_samples(const Case& its_case,
                      const std::function<bool(std::int64_t row, std::int64_t column)>& check) {
  std::uint32_t seed = 7;
  for (int sample = 0; sample < 40; ++sample) {
    const std::int64_t row = next_random(seed) % its_case.m;
    if (!check(row, next_random(seed) % its_case.n)) return false;
  }
  return true;
}

bool Problem::right() {
  return right_at_samples(case_, [&](std::int64_t row, std::int64_t column) {
    double sum = 0;
    for (std::int64_t i = 0; i < case_.k; ++i) {
      sum += static_cast<double>(a_.floats()[static_cast<std::size_t>(row * case_.k + i)]) *
             b_.floats()[static_cast<std::size_t>(i * case_.n + column)];
    }
    const double error = std::abs(sum - y()[static_cast<std::size_t>(row * case_.n + column)]);
    return error < tolerance(type_) * std::sqrt(static_cast<double>(case_.k));
  });
}

}  // namespace peers
