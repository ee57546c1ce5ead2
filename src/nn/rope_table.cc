#include "nn/rope_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace volta {
namespace {

constexpr std::int64_t kBlockRows = 256;

// theta^(2i / rotated), the wavelengths over 2 pi.
std::vector<float> wave_numbers(float theta, std::int64_t rotated) {
  std::vector<float> out(static_cast<std::size_t>(rotated / 2));
  std::int64_t i = 0;
  for (float& value : out) {
    value = std::pow(theta, static_cast<float>(2 * i++) / static_cast<float>(rotated));
  }
  return out;
}

std::vector<float> plain_frequencies(float theta, std::int64_t rotated) {
  std::vector<float> out = wave_numbers(theta, rotated);
  for (float& value : out) value = 1.0f / value;
  return out;
}

// The base for `length` tokens: theta times (factor * length / original - (factor - 1)) to the
// power of rotated / (rotated - 2), with at least `original` for `length`. It is computed in f64 up
// to the original length and in f32 beyond it.
float dynamic_theta(const TransformerConfig& config, std::int64_t length) {
  const RopeScaling& s = config.rope_scaling;
  const auto rotated = static_cast<double>(config.rotated());
  const double power = rotated / (rotated - 2.0);
  if (length <= s.original) {
    const auto original = static_cast<double>(s.original);
    const double stretch = s.factor * original / original - (s.factor - 1.0);
    return static_cast<float>(static_cast<double>(config.rope_theta) * std::pow(stretch, power));
  }
  const float stretch =
      static_cast<float>(s.factor) * static_cast<float>(length) / static_cast<float>(s.original) -
      static_cast<float>(s.factor - 1.0);
  return config.rope_theta * std::pow(stretch, static_cast<float>(power));
}

// Waves shorter than original / high_freq_factor are kept, those longer than original /
// low_freq_factor are stretched by the factor, and those between by a mixture.
void scale_llama3(std::vector<float>& frequencies, const RopeScaling& s) {
  const auto original = static_cast<double>(s.original);
  const auto factor = static_cast<float>(s.factor);
  const auto longest = static_cast<float>(original / s.low_freq_factor);
  const auto shortest = static_cast<float>(original / s.high_freq_factor);
  for (float& frequency : frequencies) {
    const float wave = 1.0f / frequency * static_cast<float>(2.0 * std::numbers::pi);
    if (wave > longest) {
      frequency /= factor;
    } else if (!(wave < shortest)) {
      const float place = 1.0f / wave * static_cast<float>(original);
      const float keep = (place - static_cast<float>(s.low_freq_factor)) /
                         static_cast<float>(s.high_freq_factor - s.low_freq_factor);
      frequency = (1.0f - keep) * frequency / factor + keep * frequency;
    }
  }
}

// The dimension whose pair makes `rotations` turns within the original context (Peng et al. 2023).
double yarn_dimension(const TransformerConfig& config, double rotations) {
  const auto original = static_cast<double>(config.rope_scaling.original);
  return static_cast<double>(config.rotated()) *
         std::log(original / (rotations * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(static_cast<double>(config.rope_theta)));
}

std::vector<float> yarn_frequencies(const TransformerConfig& config) {
  const RopeScaling& s = config.rope_scaling;
  double low = yarn_dimension(config, s.beta_fast);
  double high = yarn_dimension(config, s.beta_slow);
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(config.rotated() - 1));
  if (low == high) high += 0.001;  // The ramp must have a length.
  std::vector<float> out = wave_numbers(config.rope_theta, config.rotated());
  float i = 0.0f;
  for (float& value : out) {
    const float ramp = (i - static_cast<float>(low)) / static_cast<float>(high - low);
    const float keep = 1.0f - std::clamp(ramp, 0.0f, 1.0f);
    const float unchanged = 1.0f / value;
    const float stretched = 1.0f / (static_cast<float>(s.factor) * value);
    value = stretched * (1.0f - keep) + unchanged * keep;
    i += 1.0f;
  }
  return out;
}

// Each factor divides one frequency.
std::vector<float> longrope_frequencies(const TransformerConfig& config, std::int64_t length) {
  const RopeScaling& s = config.rope_scaling;
  const std::vector<float>& factors = length > s.original ? s.long_factors : s.short_factors;
  std::vector<float> out = wave_numbers(config.rope_theta, config.rotated());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = 1.0f / (factors[i] * out[i]);
  return out;
}

Status check_rows(const TransformerConfig& config, std::int64_t rows) {
  if (rows >= 1 && rows <= config.context) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("a rotation table of {} rows; it must be between 1 and the model's "
                          "context of {}",
                          rows, config.context));
}

}  // namespace

std::vector<float> rope_frequencies(const TransformerConfig& config, std::int64_t length) {
  const RopeScaling& s = config.rope_scaling;
  if (s.kind == RopeKind::kYarn) return yarn_frequencies(config);
  if (s.kind == RopeKind::kLongrope) return longrope_frequencies(config, length);
  const float theta =
      s.kind == RopeKind::kDynamic ? dynamic_theta(config, length) : config.rope_theta;
  std::vector<float> out = plain_frequencies(theta, config.rotated());
  if (s.kind == RopeKind::kLlama3) scale_llama3(out, s);
  if (s.kind == RopeKind::kLinear) {
    for (float& frequency : out) frequency /= static_cast<float>(s.factor);
  }
  return out;
}

TransformerConfig local_rope_config(TransformerConfig config) {
  config.rope_theta = config.rope_local_theta;
  config.rope_local_theta = 0.0f;
  config.rope_scaling = {};
  return config;
}

Result<RopeTable> RopeTable::create(const TransformerConfig& config, std::int64_t rows,
                                    Device& device, RopeRows kind) {
  VOLTA_TRY(check_rows(config, rows));
  VOLTA_TRY(Tensor table,
            Tensor::empty({DType::kF32, Shape(rows, config.rotated())}, device.memory()));
  return over(config, std::move(table), kind);
}

Result<RopeTable> RopeTable::over(const TransformerConfig& config, Tensor table, RopeRows kind) {
  const std::int64_t rows = table.shape()[0];
  VOLTA_TRY(check_rows(config, rows));
  RopeTable out;
  out.config_ = config;
  out.kind_ = kind;
  out.table_ = std::move(table);
  out.block_.resize(static_cast<std::size_t>(std::min(rows, kBlockRows) * config.rotated()));
  return out;
}

void RopeTable::compute(std::int64_t row, std::span<float> out) const {
  const std::size_t half = frequencies_.size();
  const auto scale = static_cast<float>(config_.rope_scaling.attention_factor);
  for (std::size_t i = 0; i < half; ++i) {
    const auto angle = static_cast<double>(static_cast<float>(row) * frequencies_[i]);
    out[i] = static_cast<float>(std::cos(angle)) * scale;
    out[i + half] = static_cast<float>(std::sin(angle)) * scale;
  }
}

Status RopeTable::cover(std::int64_t length) {
  const std::int64_t rows = table_.shape()[0];
  if (length < 0 || length > rows) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("a sequence of {} tokens for a rotation table of {} rows", length, rows));
  }
  const bool grows = rope_depends_on_length(config_);
  if (kind_ == RopeRows::kSequence) {
    // Up to its original context a model has the same frequencies for all lengths.
    const std::int64_t wanted = grows ? std::max(length, config_.rope_scaling.original) : 1;
    if (wanted != length_) {
      frequencies_ = rope_frequencies(config_, wanted);
      length_ = wanted;
      ready_ = 0;
    }
  }
  const auto width = static_cast<std::size_t>(config_.rotated());
  while (ready_ < length) {
    const std::int64_t count = std::min(rows - ready_, kBlockRows);
    const auto block = std::span(block_).first(static_cast<std::size_t>(count) * width);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = ready_ + i;
      if (kind_ == RopeRows::kSteps) frequencies_ = rope_frequencies(config_, row + 1);
      compute(row, block.subspan(static_cast<std::size_t>(i) * width, width));
    }
    VOLTA_TRY(Tensor part, table_.slice(ready_, ready_ + count));
    VOLTA_TRY(part.write(std::span<const float>(block)));
    ready_ += count;
  }
  return {};
}

}  // namespace volta
