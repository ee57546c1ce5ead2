// Volta's public interface in one header: `#include "volta.h"`, link Volta::volta.
#pragma once

#include "base/error.h"                 // IWYU pragma: export
#include "base/log.h"                   // IWYU pragma: export
#include "base/result.h"                // IWYU pragma: export
#include "base/version.h"               // IWYU pragma: export
#include "device/device.h"              // IWYU pragma: export
#include "device/device_handle.h"       // IWYU pragma: export
#include "device/device_kind.h"         // IWYU pragma: export
#include "device/profiling_device.h"    // IWYU pragma: export
#include "device/tensor_ops.h"          // IWYU pragma: export
#include "graph/graph.h"                // IWYU pragma: export
#include "graph/passes.h"               // IWYU pragma: export
#include "graph/plan.h"                 // IWYU pragma: export
#include "io/chat_template.h"           // IWYU pragma: export
#include "io/completion_stream.h"       // IWYU pragma: export
#include "io/generation_config.h"       // IWYU pragma: export
#include "io/model_check.h"             // IWYU pragma: export
#include "io/model_config.h"            // IWYU pragma: export
#include "io/model_folder.h"            // IWYU pragma: export
#include "io/prompt_file.h"             // IWYU pragma: export
#include "io/quantize.h"                // IWYU pragma: export
#include "io/safetensors.h"             // IWYU pragma: export
#include "io/stop_strings.h"            // IWYU pragma: export
#include "io/token_rows.h"              // IWYU pragma: export
#include "io/tokenizer.h"               // IWYU pragma: export
#include "io/tokenizers/bpe_trainer.h"  // IWYU pragma: export
#include "nn/generator.h"               // IWYU pragma: export
#include "nn/sequence_scorer.h"         // IWYU pragma: export
#include "nn/transformer.h"             // IWYU pragma: export
#include "nn/transformer_graph.h"       // IWYU pragma: export
#include "tensor/tensor.h"              // IWYU pragma: export
#include "train/evaluator.h"            // IWYU pragma: export
#include "train/presets.h"              // IWYU pragma: export
#include "train/run.h"                  // IWYU pragma: export
#include "train/trainer.h"              // IWYU pragma: export
#include "train/two_layer.h"            // IWYU pragma: export
