// The layout of help: two columns of text, wrapped so that no line is longer than a terminal of 80
// columns, or of fewer. It knows nothing of options and commands.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace volta::cli {

/// A line of a list: a name, and what it means in the column beside it, or below it if the name is
/// long. Ends with a line break.
std::string help_entry(std::string_view name, std::string_view description);
/// Wraps the lines of a text to `columns`. A line that is continued keeps its indentation; one that
/// has two columns ("tiny    the default model") is continued in its second column.
std::string wrap_help(std::string_view text, std::size_t columns = 80);

}  // namespace volta::cli
