// The matrix products to tune: those that a model runs while it decodes, reads a prompt or is
// trained.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "command.h"
#include "device/cpu_device.h"
#include "kernels/cpu/matmul_parameters.h"

namespace volta::cli {

/// A model and the phases of its work. Exactly one of `model` and `preset` is given.
struct ModelWork {
  std::string model;        ///< A model folder, the folder of a run or a .gguf file.
  std::string preset;       ///< A preset of `volta train`.
  std::string phase;        ///< decode, prompt, train or all; empty: all.
  std::int64_t vocab = 0;   ///< Vocabulary of a preset; 0: the 256 bytes.
  std::int64_t batch = 0;   ///< Sequences in training; 0: the run's or the preset's, or 4.
  std::int64_t tokens = 0;  ///< Per training sequence; 0: the run's or the preset's, or 256.
};

/// A product to tune.
struct ShapeToTune {
  cpu::MatMulShape shape;
  /// The phases of the model's work that run it: "prompt", "decode", "train", or several with "+"
  /// between them. Empty for a product whose sizes were given.
  std::string use = {};
};

/// The products to tune, one for each tuning entry (tuner::same_choice()). The errors of reading a
/// model; kInvalidArgument when there are none.
Result<std::vector<ShapeToTune>> shapes_of_model(const Globals& globals, const ModelWork& work,
                                                 CpuDevice& device);

}  // namespace volta::cli
