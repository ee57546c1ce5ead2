// Commands, their options and the values that these take. This is a thin wrapper of CLI11, whose
// header adds seconds to the compilation of every file that includes it. Only options.cc includes
// it.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace volta::cli {

/// Returns what is wrong with the text of a value; an empty string when it is valid.
using Refusal = std::function<std::string(const std::string& text)>;

/// A condition on a value, and its description in --help.
struct Check {
  Refusal refusal;
  std::string description;
  std::vector<std::string> words = {};  ///< Those that are valid, if only some are.
};
/// Numbers from `least` to `most`, both included.
Check range(int least, int most);
Check range(std::int64_t least, std::int64_t most);
Check range(double least, double most);
/// One of these words.
Check one_of(const std::vector<std::string>& words);

/// A value on the command line.
struct GivenValue {
  std::string option;  ///< "--file"; empty for a positional argument.
  std::string value;
};

/// What there is to know of an option, a flag or a positional argument, for help in other forms.
struct OptionInfo {
  std::vector<std::string>
      names;  ///< With dashes, e.g. "-n", "--tokens"; of an argument, its name.
  bool positional = false;
  bool takes_value = false;
  std::string type;                  ///< Of the value, such as "TEXT" or "INT".
  std::vector<std::string> choices;  ///< Words that the value can be, where they are limited.
  std::string description;
  std::string group;  ///< The heading in --help; empty: "Options".
};
struct CommandInfo {
  std::string name;
  std::string description;
  std::string footer;
  std::vector<OptionInfo> options;
  std::vector<CommandInfo> commands;
};

struct NamedCommand {
  std::string path;  ///< Its full name, such as "volta bench model".
  const CommandInfo& command;
};
/// A command and all commands below it, each before those below it. They refer to `command`.
std::vector<NamedCommand> all_commands(const CommandInfo& command);

/// An option, a flag or a positional argument of a command. Calls return the option itself, so that
/// they can be chained. If a value is given twice, the last one counts, unless only_once() is
/// called. Values must not be empty.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option(const Option&) = delete;
  Option& operator=(const Option&) = delete;

  Option* required();
  Option* check(const Check& check);
  Option* check(const Refusal& refusal);
  /// The heading in --help under which it is listed.
  Option* group(std::string_view name);
  Option* excludes(const Option* other);
  Option* needs(const Option* other);
  /// For a list: whether one use of the option takes all the values that follow.
  Option* allow_extra_args(bool allow);
  /// For a list: every use of the option adds to it.
  Option* take_all();
  /// For a list: the character between several values in one word.
  Option* delimiter(char between);
  /// Words that a shell can complete. Unlike one_of(), it checks nothing.
  Option* suggest(const std::vector<std::string>& words);
  /// Refuses the option where it is given twice.
  Option* only_once();
  /// Allows the empty value.
  Option* allow_empty();
  /// For names of files and folders: refuses "-", which elsewhere means standard input or output.
  Option* not_a_stream();

 private:
  friend class Command;
  void add_common_checks() const;

  OptionInfo describe() const;

  CLI::Option* option_;
  bool may_be_empty_ = false;
  std::vector<std::string> choices_;
};

/// A command with options or subcommands. It owns both: pointers to them stay valid as long as the
/// Parser lives.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  Command* add_subcommand(std::string_view name, std::string_view description);
  /// The command line must name `count` of the subcommands.
  Command* require_subcommand(int count);
  /// `names` are the names of an option ("-n,--tokens") or the name of a positional argument
  /// ("model"). T is one of the types that options.cc instantiates: text, numbers, optional ones,
  /// lists.
  template <typename T>
  Option* add_option(std::string_view names, T& variable, std::string_view description = "");
  Option* add_flag(std::string_view names, bool& variable, std::string_view description);
  /// The same with negative names ("--keep,!--no-keep"). `variable` stays empty when none is given.
  Option* add_flag(std::string_view names, std::optional<bool>& variable,
                   std::string_view description);
  /// Text below the options in --help.
  Command* footer(std::string_view text);
  /// `run` is called when the parsed command line names this command.
  Command* callback(const std::function<void()>& run);

 private:
  friend class Parser;
  void finish(const std::string& footer_of_commands);
  void add_values(std::vector<GivenValue>& values) const;
  CommandInfo describe() const;

  CLI::App* app_;
  std::list<Option> options_;
  std::list<Command> commands_;
};

/// The command line of a whole program. The options of the root command may also follow the names
/// of its subcommands.
class Parser {
 public:
  Parser(const std::string& description, const std::string& name, const std::string& version);
  ~Parser();
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  Command& root() { return root_; }
  /// All options and commands that have been added.
  CommandInfo describe() const;
  /// Parses once, after all commands have been added: sets the variables and calls the callback of
  /// the command that `words` (without the program's name) name. Returns the text of --help or
  /// --version, otherwise an empty text. kInvalidArgument for an invalid command line.
  /// `footer_of_commands` ends the --help of every command that has no subcommands.
  Result<std::string> parse(std::vector<std::string> words, const std::string& footer_of_commands);
  /// The program's name and the commands on the command line, such as "volta bench gaps".
  std::string named_command() const;
  /// The names of the root's options on the command line, such as "--threads".
  std::vector<std::string> given() const;
  /// The values on the command line that can be names of files: those of all options that take
  /// text, except text that may be empty.
  std::vector<GivenValue> values() const;

 private:
  std::unique_ptr<CLI::App> app_;
  Command root_;
};

}  // namespace volta::cli
