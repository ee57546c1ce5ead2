// volta completion: scripts that complete Volta's commands and options in bash, zsh and fish, made
// from the definitions that the command line itself is parsed with.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "command.h"

namespace volta::cli {
namespace {

// The options of a command and the global ones, which may follow every command.
std::vector<OptionInfo> options_of(const CommandInfo& command, const CommandInfo& root) {
  std::vector<OptionInfo> options = command.options;
  if (&command != &root) {
    for (const OptionInfo& global : root.options) {
      const auto same = [&](const OptionInfo& own) { return own.names == global.names; };
      if (std::ranges::none_of(options, same)) options.push_back(global);
    }
  }
  std::erase_if(options, [](const OptionInfo& option) { return option.positional; });
  options.push_back(
      {.names = {"-h", "--help"}, .type = {}, .choices = {}, .description = "help", .group = {}});
  return options;
}

std::vector<std::string> names_of(const std::vector<CommandInfo>& commands) {
  std::vector<std::string> names;
  for (const CommandInfo& command : commands) names.push_back(command.name);
  return names;
}

// A pattern of the shell's `case` for "COMMAND WORD" where the word names a subcommand.
std::vector<std::string> known_paths(const CommandInfo& root, const std::string& quote) {
  std::vector<std::string> paths;
  for (const auto& [path, command] : all_commands(root)) {
    if (&command != &root) paths.push_back(quote + path + quote);
  }
  return paths;
}

std::string bash_script(const CommandInfo& root) {
  std::string cases;
  for (const auto& [path, command] : all_commands(root)) {
    std::vector<std::string> words, values, choices;
    for (const OptionInfo& option : options_of(command, root)) {
      words.insert(words.end(), option.names.begin(), option.names.end());
      if (!option.takes_value) continue;
      const std::string pattern = fmt::format("{}", fmt::join(option.names, "|"));
      if (option.choices.empty()) {
        values.push_back(pattern);
      } else {
        choices.push_back(
            fmt::format("        {}) words=\"{}\" ;;\n", pattern, fmt::join(option.choices, " ")));
      }
    }
    cases += fmt::format(
        "    \"{}\")\n      words=\"{}\"\n      commands=\"{}\"\n      case $previous in\n{}", path,
        fmt::join(words, " "), fmt::join(names_of(command.commands), " "), fmt::join(choices, ""));
    if (!values.empty()) {
      cases += fmt::format("        {}) words= ;;\n", fmt::join(values, "|"));
    }
    cases += "        *) value= ;;\n      esac ;;\n";
  }
  return fmt::format(R"(# bash completion for volta; made by `volta completion bash`.
_volta() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
  local command=volta words= commands= value=yes i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$command ${{COMP_WORDS[i]}}" in
      {0})
        command="$command ${{COMP_WORDS[i]}}" ;;
    esac
  done
  COMPREPLY=()
  case $command in
{1}  esac
  if [[ -n $value ]]; then
    # The value of an option: one of its words, or a file.
    [[ -n $words ]] && COMPREPLY=($(compgen -W "$words" -- "$current")) && return
  elif [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    return
  elif [[ -n $commands ]]; then
    COMPREPLY=($(compgen -W "$commands" -- "$current"))
    return
  fi
  compopt -o filenames 2>/dev/null
  COMPREPLY=($(compgen -f -- "$current"))
}}
complete -F _volta volta
)",
                     fmt::join(known_paths(root, "\""), "|"), cases);
}

// The text within single quotes of a shell, with these characters escaped by a backslash.
std::string shell_quoted(std::string_view text, std::string_view escaped = "") {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
      continue;
    }
    if (escaped.contains(c)) out += '\\';
    out += c;
  }
  return out + "'";
}

std::string zsh_option(const OptionInfo& option, const std::string& name) {
  std::string spec = name;
  if (option.takes_value) spec += name.starts_with("--") ? "=" : "+";
  std::string description;
  for (const char c : option.description) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') description += '\\';
    description += c;
  }
  spec += fmt::format("[{}]", description);
  if (option.takes_value) {
    const std::string type = option.type.empty() ? "value" : option.type;
    spec += option.choices.empty() ? fmt::format(":{}:_files", type)
                                   : fmt::format(":{}:({})", type, fmt::join(option.choices, " "));
  }
  return "        " + shell_quoted("*" + spec);
}

std::string zsh_script(const CommandInfo& root) {
  std::string cases;
  for (const auto& [path, command] : all_commands(root)) {
    std::vector<std::string> specs;
    for (const OptionInfo& option : options_of(command, root)) {
      for (const std::string& name : option.names) specs.push_back(zsh_option(option, name));
    }
    if (command.commands.empty()) {
      specs.push_back("        '*:file:_files'");
    } else {
      std::vector<std::string> commands;
      for (const CommandInfo& below : command.commands) {
        commands.push_back(
            fmt::format("{}\\:{}", below.name, shell_quoted(below.description, ":()")));
      }
      // The list is within double quotes, so that its descriptions can be within single ones.
      specs.push_back(fmt::format("        \"*:command:(({}))\"", fmt::join(commands, " ")));
    }
    cases += fmt::format("    ({})\n      _arguments -S \\\n{} ;;\n", shell_quoted(path),
                         fmt::join(specs, " \\\n"));
  }
  return fmt::format(R"(#compdef volta
# zsh completion for volta; made by `volta completion zsh`.
_volta() {{
  local command=volta word
  for word in ${{words[2,CURRENT-1]}}; do
    case "$command $word" in
      ({0}) command="$command $word" ;;
    esac
  done
  case $command in
{1}  esac
}}
if [ "$funcstack[1]" = "_volta" ]; then
  _volta "$@"
else
  compdef _volta volta
fi
)",
                     fmt::join(known_paths(root, "\""), "|"), cases);
}

// fish has no escapes within single quotes but \' and \\.
std::string fish_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string fish_script(const CommandInfo& root) {
  std::string lines;
  for (const auto& [path, command] : all_commands(root)) {
    const std::string here =
        fmt::format("complete -c volta -n 'test (__volta_command) = \"{}\"'", path);
    for (const CommandInfo& below : command.commands) {
      lines += fmt::format("{} -f -a {} -d {}\n", here, below.name, fish_quoted(below.description));
    }
    for (const OptionInfo& option : options_of(command, root)) {
      lines += here;
      for (const std::string& name : option.names) {
        const bool is_long = name.starts_with("--");
        lines += fmt::format(" -{} {}", is_long ? "l" : "s", name.substr(is_long ? 2 : 1));
      }
      if (option.takes_value && option.choices.empty()) lines += " -r -F";
      if (option.takes_value && !option.choices.empty()) {
        lines += fmt::format(" -x -a {}",
                             fish_quoted(fmt::format("{}", fmt::join(option.choices, " "))));
      }
      lines += fmt::format(" -d {}\n", fish_quoted(option.description));
    }
  }
  return fmt::format(R"(# fish completion for volta; made by `volta completion fish`.
function __volta_command
  set -l command volta
  for word in (commandline -opc)[2..-1]
    switch "$command $word"
      case {0}
        set command "$command $word"
    end
  end
  echo $command
end
{1})",
                     fmt::join(known_paths(root, "'"), " "), lines);
}

}  // namespace

void add_completion(Command& app, Globals& globals, Action& action,
                    const std::function<CommandInfo()>& describe) {
  Command* command =
      app.add_subcommand("completion", "print a script that completes commands in a shell");
  auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(one_of({"bash", "zsh", "fish"}));
  command->footer(
      "bash:  source <(volta completion bash)\n"
      "zsh:   volta completion zsh > ~/.zfunc/_volta, with fpath+=~/.zfunc before compinit\n"
      "fish:  volta completion fish > ~/.config/fish/completions/volta.fish\n"
      "`make install` puts all three into their places.");
  command->callback([&globals, &action, shell, describe] {
    action = [&globals, shell, describe]() -> Status {
      VOLTA_TRY(parse_output(globals, {Output::kText}));
      VOLTA_TRY(refuse_unused(globals, kNothingRuns));
      const CommandInfo root = describe();
      return print(*shell == "bash"  ? bash_script(root)
                   : *shell == "zsh" ? zsh_script(root)
                                     : fish_script(root));
    };
  });
}

}  // namespace volta::cli
