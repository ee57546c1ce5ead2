// Which matrix products there are to tune: those that a model runs while it decodes, reads a prompt
// and is trained.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "command.h"
#include "device/cpu_device.h"
#include "kernels/cpu/matmul_parameters.h"

namespace volta::cli {

/// A model, and what of its work. One of `model` and `preset` is given.
struct ModelWork {
  std::string model;        ///< A model folder, the folder of a run or a .gguf file.
  std::string preset;       ///< Of `volta train`.
  std::string phase;        ///< decode, prompt, train; all, or empty: all of them.
  std::int64_t vocab = 0;   ///< A preset's tokens; 0: the 256 of bytes.
  std::int64_t batch = 0;   ///< In training; 0: the run's or the preset's, or 4.
  std::int64_t tokens = 0;  ///< A sequence in training; 0: the run's or the preset's, or 256.
};

/// The products that tuning covers, each class of them once. The errors of reading a model;
/// kInvalidArgument where there are none.
Result<std::vector<cpu::MatMulShape>> shapes_of_model(const Globals& globals, const ModelWork& work,
                                                      CpuDevice& device);

}  // namespace volta::cli
