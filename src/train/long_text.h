// Texts that are too long to be held in memory, as token ids in a mapped file. Internal to
// train/dataset.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "base/work_budget.h"
#include "text/tokenizer.h"
#include "train/dataset.h"

namespace volta {

/// load_texts() for the files to train on. With the byte tokenizer and one file, the file itself is
/// mapped. Otherwise the token ids are written to a temporary file beside DataFiles::scratch, whose
/// name is removed as soon as it is mapped; the system frees its space when the process ends.
Result<Dataset> map_texts(const DataFiles& files, std::string_view kind,
                          std::shared_ptr<const Tokenizer> tokenizer,
                          const Interruption& interrupted);

}  // namespace volta
