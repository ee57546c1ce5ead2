// volta man: manual pages (roff, man(7)), made from the definitions that the command line itself is
// parsed with. They have no date, so that two builds of a commit write the same pages.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/version.h"
#include "command.h"

namespace volta::cli {
namespace {

struct ManOptions {
  std::vector<std::string> command;
  std::string out;
};

// Text for roff: hyphens that can be copied, backslashes, and no line that begins with a control
// character.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    out += c == '\\' ? "\\e" : c == '-' ? "\\-" : std::string(1, c);
  }
  return out;
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return text;
}

std::string page_name(const std::string& path) {
  std::string name = path;
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string option_entry(const OptionInfo& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names) {
    names.push_back(fmt::format("\\fB{}\\fR", roff(option.positional ? upper(name) : name)));
  }
  std::string entry = fmt::format(".TP\n{}", fmt::join(names, ", "));
  if (option.takes_value && !option.positional) entry += fmt::format(" \\fI{}\\fR", option.type);
  std::string description = option.description;
  const auto is_told = [&](const std::string& word) { return description.contains(word); };
  if (!std::ranges::all_of(option.choices, is_told)) {
    description += fmt::format(" ({})", fmt::join(option.choices, ", "));
  }
  return fmt::format("{}\n{}\n", entry, description.empty() ? "\\&" : roff(description));
}

// The options under their headings, in the order of --help.
std::string option_sections(const CommandInfo& command, bool root) {
  std::vector<std::pair<std::string, std::string>> sections;
  for (const OptionInfo& option : command.options) {
    std::string heading = option.positional ? "ARGUMENTS" : "OPTIONS";
    if (!option.positional && !option.group.empty() && option.group != "Options" &&
        option.group != "OPTIONS") {
      heading = upper(option.group) + " OPTIONS";
    }
    auto found = std::ranges::find(sections, heading, &std::pair<std::string, std::string>::first);
    if (found == sections.end()) found = sections.insert(sections.end(), {heading, ""});
    found->second += option_entry(option);
  }
  std::string text;
  for (const auto& [heading, entries] : sections) {
    text += fmt::format(".SH \"{}\"\n{}", roff(heading), entries);
  }
  if (!root) {
    text += ".SH \"GLOBAL OPTIONS\"\nThe options of \\fBvolta\\fR(1) may follow the command.\n";
  }
  return text;
}

constexpr std::string_view kExitStatus =
    ".SH \"EXIT STATUS\"\n"
    "0 done, 1 failure, 2 usage, 3 invalid model or file, 4 out of memory, 5 device, 6 "
    "verification mismatch, 130 interrupted, 141 the reader of a pipe has gone.\n";

struct Variable {
  std::string_view name;
  std::string_view meaning;
};
constexpr std::array kEnvironment = {
    Variable{"VOLTA_DEVICE", "cpu, cuda, cuda:N or auto; --device goes before it"},
    Variable{"VOLTA_NUM_THREADS", "CPU threads; --threads goes before it"},
    Variable{"VOLTA_SIMD",
             "the instructions that kernels may use: sse4, avx2, avx512-novnni, "
             "avx512, avx512-bf16 or amx"},
    Variable{"VOLTA_TUNING", "off: without the parameters that volta tune found"},
    Variable{"VOLTA_CACHE_DIR", "where these parameters are kept (default: ~/.volta)"},
    Variable{"VOLTA_HISTORY", "the file of earlier messages of volta chat"},
    Variable{"HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME",
             "where downloaded models are looked for: HF_HUB_CACHE, HF_HOME/hub, "
             "XDG_CACHE_HOME/huggingface/hub, otherwise ~/.cache/huggingface/hub"},
    Variable{"NO_COLOR", "no colour on the terminal"},
};

std::string environment_section() {
  std::string text = ".SH ENVIRONMENT\n";
  for (const Variable& variable : kEnvironment) {
    text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(variable.name), roff(variable.meaning));
  }
  return text;
}

std::string page(const CommandInfo& command, const std::string& path, const CommandInfo& root) {
  const bool is_root = &command == &root;
  const bool has_options = std::ranges::any_of(
      command.options, [](const OptionInfo& option) { return !option.positional; });
  std::string text = fmt::format(
      ".TH \"{0}\" 1 \"\" \"volta {1}\" \"Volta\"\n.SH NAME\n{2} \\- {3}\n.SH "
      "SYNOPSIS\n\\fB{4}\\fR",
      upper(page_name(path)), version(), roff(page_name(path)), roff(command.description),
      roff(path));
  for (const OptionInfo& option : command.options) {
    if (option.positional) text += fmt::format(" \\fI{}\\fR", roff(upper(option.names.front())));
  }
  if (has_options) text += " [\\fIOPTIONS\\fR]";
  if (!command.commands.empty()) text += " \\fICOMMAND\\fR";
  text += "\n" + option_sections(command, is_root);
  if (!command.commands.empty()) {
    text += ".SH COMMANDS\n";
    for (const CommandInfo& below : command.commands) {
      text += fmt::format(".TP\n\\fB{}\\fR(1)\n{}\n", roff(page_name(path + " " + below.name)),
                          roff(below.description));
    }
  }
  if (!command.footer.empty() && command.commands.empty()) {
    text += fmt::format(".SH NOTES\n.nf\n{}\n.fi\n", roff(command.footer));
  }
  text += kExitStatus;
  return is_root ? text + environment_section() : text + ".SH \"SEE ALSO\"\n\\fBvolta\\fR(1)\n";
}

Status print_page(const CommandInfo& root, const std::vector<std::string>& words) {
  const std::string wanted =
      words.empty() ? root.name : fmt::format("{} {}", root.name, fmt::join(words, " "));
  for (const auto& [path, command] : all_commands(root)) {
    if (path == wanted) return print(page(command, path, root));
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("there is no command '{}'; see volta --help", wanted));
}

Status write_pages(const CommandInfo& root, const std::string& folder) {
  VOLTA_TRY(create_directories(folder));
  for (const auto& [path, command] : all_commands(root)) {
    VOLTA_TRY(
        write_file_atomic(join_path(folder, page_name(path) + ".1"), page(command, path, root)));
  }
  return {};
}

}  // namespace

void add_man(Command& app, Globals& globals, Action& action,
             const std::function<CommandInfo()>& describe) {
  Command* command = app.add_subcommand("man", "print a manual page: volta man | man -l -");
  auto options = std::make_shared<ManOptions>();
  command->add_option("command", options->command, "the command whose page it is (default: volta)");
  command->add_option("--out", options->out, "write the pages of all commands into this folder")
      ->check(refuse_empty)
      ->not_a_stream();
  command->callback([&globals, &action, options, describe] {
    action = [&globals, options, describe]() -> Status {
      VOLTA_TRY(parse_output(globals, {Output::kText}));
      VOLTA_TRY(refuse_unused(globals, kNothingRuns));
      if (options->out.empty()) return print_page(describe(), options->command);
      if (options->command.empty()) return write_pages(describe(), options->out);
      return fail(ErrorCode::kInvalidArgument, "--out writes all pages: leave the command out");
    };
  });
}

}  // namespace volta::cli
