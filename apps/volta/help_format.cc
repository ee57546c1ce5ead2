#include "help_format.h"

#include <algorithm>
#include <cstddef>

namespace volta::cli {
namespace {

constexpr std::size_t kColumns = 80;
constexpr std::size_t kNameIndent = 2;
constexpr std::size_t kContinuedNameIndent = 6;
constexpr std::size_t kDescriptionColumn = 30;

// Appends the words of `text` to `out`, whose last line has `column` characters. A word that does
// not fit begins a new line with `indent` spaces; one that is longer than a line stays whole.
void append_words(std::string& out, std::size_t column, std::string_view text, std::size_t indent,
                  std::size_t columns = kColumns) {
  bool first = true;
  while (true) {
    const std::size_t begin = text.find_first_not_of(' ');
    if (begin == std::string_view::npos) return;
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(word.size());
    const std::size_t space = first ? 0 : 1;
    if (!first && column + space + word.size() > columns) {
      out += '\n';
      out.append(indent, ' ');
      column = indent;
    } else if (!first) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
    first = false;
  }
}

// The column in which a line is continued.
std::size_t continued_column(std::string_view line, std::size_t columns) {
  const std::size_t begin = line.find_first_not_of(' ');
  const std::size_t gap = line.find("  ", begin);
  const std::size_t second = gap == std::string_view::npos ? gap : line.find_first_not_of(' ', gap);
  return second == std::string_view::npos || second > columns / 2 ? begin : second;
}

void append_wrapped(std::string& out, std::string_view line, std::size_t columns) {
  if (line.size() <= columns) {
    out += line;
    return;
  }
  const std::size_t column = continued_column(line, columns);
  out += line.substr(0, column);
  append_words(out, column, line.substr(column), column, columns);
}

}  // namespace

std::string help_entry(std::string_view name, std::string_view description) {
  std::string out(kNameIndent, ' ');
  append_words(out, kNameIndent, name, kContinuedNameIndent);
  const std::size_t line = out.rfind('\n') + 1;  // 0 when there is one line.
  std::size_t column = out.size() - line;
  while (!description.empty()) {
    if (column >= kDescriptionColumn) {
      out += '\n';
      column = 0;
    }
    out.append(kDescriptionColumn - column, ' ');
    const std::size_t end = std::min(description.find('\n'), description.size());
    append_words(out, kDescriptionColumn, description.substr(0, end), kDescriptionColumn);
    description.remove_prefix(std::min(end + 1, description.size()));
    column = kColumns;
  }
  return out + '\n';
}

std::string wrap_help(std::string_view text, std::size_t columns) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    append_wrapped(out, text.substr(0, end), columns);
    if (end == std::string_view::npos) break;
    out += '\n';
    text.remove_prefix(end + 1);
  }
  return out;
}

}  // namespace volta::cli
