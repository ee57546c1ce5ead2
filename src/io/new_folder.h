// The place of a folder that is made whole and then given its name (quantize, merge). Knows nothing
// of what goes into it.
#pragma once

#include <string>

#include "base/result.h"

namespace volta {

/// Whether a new folder can be put at this path: found out before the work, by making one beside it
/// and removing it (missing parents are made, and stay). kInvalidArgument for an empty name and for
/// a folder that is not empty; kIo for what is no folder and for a place that cannot be written.
Status check_new_folder(const std::string& path);

}  // namespace volta
