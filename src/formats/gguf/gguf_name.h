// Names of GGUF files. Internal to formats, train and the command line; opens no file.
#pragma once

#include <string_view>

namespace volta {

/// Whether a name ends in .gguf, in upper or lower case.
bool has_gguf_name(std::string_view path);

}  // namespace volta
