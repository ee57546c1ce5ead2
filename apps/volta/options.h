// What a command line may say: commands, their options and what values those take. This is a thin
// cover of CLI11, whose header costs seconds in every file that includes it: options.cc alone does.
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

/// Tells what is wrong with the text of a value; an empty answer means that nothing is.
using Refusal = std::function<std::string(const std::string& text)>;

/// What a value must be, and how --help says so.
struct Check {
  Refusal refusal;
  std::string description;
};
/// Numbers from `least` to `most`, both included.
Check range(int least, int most);
Check range(std::int64_t least, std::int64_t most);
Check range(double least, double most);
/// One of these words.
Check one_of(const std::vector<std::string>& words);

/// An option, a flag or a positional argument of a command. Calls return the option itself, to go
/// on with. A value that is given twice counts as it was given last, and must not be empty.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option(const Option&) = delete;
  Option& operator=(const Option&) = delete;

  Option* required();
  Option* check(const Check& check);
  Option* check(const Refusal& refusal);
  /// The heading that --help lists it under.
  Option* group(std::string_view name);
  Option* excludes(const Option* other);
  Option* needs(const Option* other);
  /// Whether one mention of a list takes all the values that follow.
  Option* allow_extra_args(bool allow);
  /// A list: each mention adds to it.
  Option* take_all();
  /// A list: what stands between its values in one word.
  Option* delimiter(char between);
  /// The empty value has a meaning of its own.
  Option* allow_empty();

 private:
  friend class Command;
  void add_common_checks() const;

  CLI::Option* option_;
  bool may_be_empty_ = false;
};

/// A command, which has options, or commands below it. It owns both: pointers to them stay valid
/// as long as the Parser lives.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  Command* add_subcommand(std::string_view name, std::string_view description);
  /// The command line must name `count` of the commands below this one.
  Command* require_subcommand(int count);
  /// `names` are those of an option ("-n,--tokens") or the one of a positional argument ("model").
  /// T is one of the types that options.cc lists: text, numbers, optional ones, lists.
  template <typename T>
  Option* add_option(std::string_view names, T& variable, std::string_view description = "");
  Option* add_flag(std::string_view names, bool& variable, std::string_view description);
  /// The same with names that mean no ("--keep,!--no-keep"); nothing where none is given.
  Option* add_flag(std::string_view names, std::optional<bool>& variable,
                   std::string_view description);
  /// Text below the options in --help.
  Command* footer(std::string_view text);
  /// Runs when the command line is parsed and names this command.
  Command* callback(const std::function<void()>& run);

 private:
  friend class Parser;
  void finish(const std::string& footer_of_commands);

  CLI::App* app_;
  std::list<Option> options_;
  std::list<Command> commands_;
};

/// The command line of a whole program: the command at its root, whose options may also stand after
/// the names of those below it.
class Parser {
 public:
  Parser(const std::string& description, const std::string& name, const std::string& version);
  ~Parser();
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  Command& root() { return root_; }
  /// Parses once, when all commands are added: sets the variables and runs the callback of the
  /// command that `words` (without the program's name) name. Returns what --help or --version
  /// print, else an empty text. kInvalidArgument for words that cannot be. The --help of every
  /// command that runs ends with `footer_of_commands`.
  Result<std::string> parse(std::vector<std::string> words, const std::string& footer_of_commands);
  /// The names of the root's options that the command line has, such as "--threads".
  std::vector<std::string> given() const;

 private:
  std::unique_ptr<CLI::App> app_;
  Command root_;
};

}  // namespace volta::cli
