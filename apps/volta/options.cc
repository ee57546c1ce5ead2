#include "options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "help_format.h"
#include "suggestion.h"

namespace volta::cli {
namespace {

Check check_of(const CLI::Validator& validator) {
  return {.refusal = [validator](const std::string& text) { return validator(text); },
          .description = validator.get_description()};
}

// Whether a text is a whole number, which may be too large for any variable.
bool is_whole(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

// CLI11 would clamp a number that is too large and wrap a negative one around. So every option that
// takes whole numbers is first checked as text.
std::string check_whole(const std::string& text, bool negative) {
  const auto refusal = [&](const auto& parsed) -> std::string {
    if (parsed) return "";
    if (is_whole(text) && (negative || !text.starts_with("-")))
      return fmt::format("{} is out of range", text);
    return fmt::format("'{}' is no whole number{}", text, negative ? "" : " of 0 or more");
  };
  return negative ? refusal(parse_int<std::int64_t>(text, "value"))
                  : refusal(parse_int<std::uint64_t>(text, "value"));
}

// An empty value would count as not given. It often comes from a shell variable that is not set.
std::string refuse_nothing(const std::string& text) { return text.empty() ? "give a value" : ""; }

// The words that are valid where parsing ended: the options of each command that was named, and the
// subcommands of the last one.
std::vector<std::string> known_words(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
  }
  const std::vector<CLI::App*> named = app.get_subcommands();
  if (named.empty()) {
    for (const CLI::App* command : app.get_subcommands(std::function<bool(const CLI::App*)>())) {
      words.push_back(command->get_name());
    }
  }
  for (const CLI::App* command : named) {
    const std::vector<std::string> below = known_words(*command);
    words.insert(words.end(), below.begin(), below.end());
  }
  return words;
}

// The pages of --help, wrapped.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return help_entry(make_option_name(option, is_positional) + make_option_opts(option),
                      make_option_desc(option));
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return help_entry(command->get_display_name(true), command->get_description());
  }
  std::string make_description(const CLI::App* command) const override {
    return wrap_help(CLI::Formatter::make_description(command));
  }
  std::string make_footer(const CLI::App* command) const override {
    return wrap_help(CLI::Formatter::make_footer(command));
  }
};

// Whether a command that was named takes a model as its argument.
bool takes_model(const CLI::App& app) {
  const CLI::Option* model = app.get_option_no_throw("model");
  if (model != nullptr && model->get_positional()) return true;
  const std::vector<CLI::App*> named = app.get_subcommands();
  return std::any_of(named.begin(), named.end(), [](const CLI::App* c) { return takes_model(*c); });
}

// What to do with a word that no command takes, as far as the options of the commands tell.
std::string advice(const CLI::App& app, const std::string& unknown) {
  const std::vector<std::string> known = known_words(app);
  if (const std::string_view instead = substitute(unknown, known); !instead.empty()) {
    return fmt::format("; {}", instead);
  }
  const std::string similar = suggestion(unknown, known);
  if (similar == unknown) return "; it goes behind the name of the command";
  if (!similar.empty()) return fmt::format("; did you mean {}?", similar);
  const auto knows = [&](std::string_view word) {
    return std::find(known.begin(), known.end(), word) != known.end();
  };
  const bool flag = unknown.starts_with("-");
  const bool names_model = unknown == "-m" || unknown == "-hf" || unknown == "--hf-repo" ||
                           unknown == "--hf-path" || unknown.starts_with("--model");
  if (names_model && takes_model(app)) {
    return "; the model is the first word behind the command";
  }
  if (!flag && knows("--prompt") && knows("--file")) {
    return "; a prompt goes with -p, a file that holds it with -f";
  }
  if (!flag && knows("--resume") && path_exists(join_path(unknown, "run.json"))) {
    return fmt::format("; a run goes on with --out {} --resume", shell_quoted(unknown));
  }
  if (!flag && knows("--init") && path_exists(join_path(unknown, "config.json"))) {
    return fmt::format("; a model to start from goes with --init {}", shell_quoted(unknown));
  }
  if (!flag && knows("--data")) return "; a file to read goes with --data";
  return "";
}

// The commands below the last one that was named.
std::string names_of_commands(const CLI::App& app) {
  const CLI::App* last = &app;
  while (!last->get_subcommands().empty()) last = last->get_subcommands().back();
  std::string names;
  for (const CLI::App* command : last->get_subcommands(std::function<bool(const CLI::App*)>())) {
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  return names;
}

// "--lr: 'abc' is no number" for CLI11's "Could not convert: --lr = abc".
std::string conversion_message(std::string_view text) {
  constexpr std::string_view kBefore = "Could not convert: ", kBetween = " = ";
  const std::size_t between = text.find(kBetween);
  if (!text.starts_with(kBefore) || between == std::string_view::npos) return std::string(text);
  return fmt::format("{}: '{}' is no number", text.substr(kBefore.size(), between - kBefore.size()),
                     text.substr(between + kBetween.size()));
}

// Of "-threads 4", which is read as -t with the value "hreads", the word "-threads": whichever word
// of the command line holds the value that the message complains about. Empty if there is none.
std::string long_name_with_one_hyphen(std::string_view message,
                                      const std::vector<std::string>& words) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  for (const std::string& word : words) {
    if (word.size() < 3 || word[0] != '-' || !is_letter(word[1]) || !is_letter(word[2])) continue;
    if (message.contains(fmt::format("'{}'", word.substr(2)))) return word;
  }
  return "";
}

// One of these words on the command line, where options may still come. Empty if there is none.
std::string first_of(std::initializer_list<std::string_view> wanted,
                     const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word == "--") break;  // What follows is no option.
    if (std::ranges::find(wanted, word) != wanted.end()) return word;
  }
  return "";
}

// An option of llama.cpp that is read as -h and other letters. Empty if there is none.
std::string help_with_letters(const std::vector<std::string>& words) {
  return first_of({"-hf", "-hfr", "-hff", "-hft"}, words);
}

// An option of llama.cpp that is read as -f with the value "a". Empty if there is none.
std::string file_with_letter(const std::vector<std::string>& words) {
  return first_of({"-fa"}, words);
}

// The flag of a word such as "--resume=yes", which gives it a value. Empty if there is none.
std::string flag_with_value(const CLI::App& app, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    if (!word.starts_with("--") || equals == std::string::npos) continue;
    const std::string name = word.substr(0, equals);
    for (const CLI::App* command = &app; command != nullptr;) {
      const CLI::Option* option = command->get_option_no_throw(name);
      if (option != nullptr && option->get_items_expected_max() == 0) return name;
      const std::vector<CLI::App*> below = command->get_subcommands();
      command = below.empty() ? nullptr : below.back();
    }
  }
  return "";
}

// A flag that was given a value other than true and false, and that CLI11 2.4 took all the same.
// Empty if there is none.
std::string flag_with_taken_value(const CLI::App& app) {
  const auto is_truth = [](const std::string& value) {
    return value == "true" || value == "false";
  };
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() != 0 || option->get_lnames().empty()) continue;
    if (!std::ranges::all_of(option->results(), is_truth)) {
      return "--" + option->get_lnames().front();
    }
  }
  for (const CLI::App* command : app.get_subcommands()) {
    std::string flag = flag_with_taken_value(*command);
    if (!flag.empty()) return flag;
  }
  return "";
}

// A message of one line about what is wrong with the words of the command line.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error,
                          const std::vector<std::string>& words) {
  for (const std::string& word : {help_with_letters(words), file_with_letter(words)}) {
    if (!word.empty()) return fmt::format("{} is not known here{}", word, advice(app, word));
  }
  const std::vector<std::string> extras = app.remaining(true);
  const bool command_missing = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if (!extras.empty() && (command_missing || dynamic_cast<const CLI::ExtrasError*>(&error))) {
    const auto flag = std::find_if(extras.begin(), extras.end(),
                                   [](const std::string& word) { return word.starts_with("-"); });
    // A command that Volta lacks comes before its options.
    const bool unknown_command = command_missing && !extras.front().starts_with("-");
    const std::string& unknown = flag == extras.end() || unknown_command ? extras.front() : *flag;
    return fmt::format("{} is not known here{}", unknown, advice(app, unknown));
  }
  const std::string_view text = error.what();
  if (const std::string word = long_name_with_one_hyphen(text, words); !word.empty()) {
    return fmt::format("{} is not known here{}", word, advice(app, word));
  }
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
    const std::string flag = flag_with_value(app, words);
    return flag.empty() ? conversion_message(text) : fmt::format("{} takes no value", flag);
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    const std::string_view name = text.substr(0, text.find(':'));
    if (text.ends_with(" missing")) return fmt::format("{}: give a value", name);
    if (text.contains("At Most")) return fmt::format("{} is given more than once", name);
  }
  if (text == "A subcommand is required") {
    return fmt::format("name a command: {}", names_of_commands(app));
  }
  return std::string(text);
}

}  // namespace

Check range(int least, int most) { return range(std::int64_t{least}, std::int64_t{most}); }
Check range(std::int64_t least, std::int64_t most) {
  return {.refusal =
              [=](const std::string& text) {
                const auto value = parse_int<std::int64_t>(text, "value");
                const bool inside = value && *value >= least && *value <= most;
                // What is no number is for check_whole(), which all such options have.
                const bool number = is_whole(text);
                return inside || !number
                           ? std::string()
                           : fmt::format("{} is not between {} and {}", text, least, most);
              },
          .description = fmt::format("INT in [{} - {}]", least, most)};
}
Check range(double least, double most) {
  return {.refusal =
              [=](const std::string& text) {
                double value = 0;
                // What is no number is for CLI11's conversion.
                if (!CLI::detail::lexical_cast(text, value)) return std::string();
                const bool inside = value >= least && value <= most;  // NaN is not.
                return inside ? std::string()
                              : fmt::format("{} is not between {} and {}", text, least, most);
              },
          .description = fmt::format("FLOAT in [{} - {}]", least, most)};
}
Check one_of(const std::vector<std::string>& words) {
  Check check = check_of(CLI::IsMember(words));
  check.words = words;
  return check;
}

Option* Option::required() {
  option_->required();
  return this;
}

Option* Option::suggest(const std::vector<std::string>& words) {
  choices_ = words;
  return this;
}

Option* Option::check(const Check& check) {
  if (!check.words.empty()) choices_ = check.words;
  option_->check(check.refusal, check.description);
  return this;
}

Option* Option::check(const Refusal& refusal) {
  option_->check(refusal);
  return this;
}

Option* Option::group(std::string_view name) {
  option_->group(std::string(name));
  return this;
}

Option* Option::excludes(const Option* other) {
  option_->excludes(other->option_);
  return this;
}

Option* Option::needs(const Option* other) {
  option_->needs(other->option_);
  return this;
}

Option* Option::allow_extra_args(bool allow) {
  option_->allow_extra_args(allow);
  return this;
}

Option* Option::take_all() {
  option_->take_all();
  return this;
}

Option* Option::delimiter(char between) {
  option_->delimiter(between);
  return this;
}

Option* Option::only_once() {
  option_->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  return this;
}

Option* Option::allow_empty() {
  may_be_empty_ = true;
  return this;
}

Option* Option::not_a_stream() {
  option_->check([](const std::string& text) {
    return text == "-" ? "- is not taken here for standard input or output: name a file or folder "
                         "(./- for one of this name)"
                       : std::string();
  });
  return this;
}

void Option::add_common_checks() const {
  const bool takes_value = option_->get_items_expected_max() > 0;
  if (takes_value && !may_be_empty_) option_->check(refuse_nothing);
  const std::string type = option_->get_type_name();
  const bool negative = type.starts_with("INT");
  if (!negative && !type.starts_with("UINT")) return;
  option_->check([=](const std::string& text) { return check_whole(text, negative); });
}

OptionInfo Option::describe() const {
  OptionInfo info{.names = {},
                  .positional = option_->get_positional(),
                  .takes_value = option_->get_items_expected_max() > 0,
                  .type = option_->get_type_name(),
                  .choices = choices_,
                  .description = option_->get_description(),
                  .group = option_->get_group()};
  info.type = info.type.substr(0, info.type.find(':'));  // Without the check behind it.
  for (const std::string& name : option_->get_snames()) info.names.push_back("-" + name);
  for (const std::string& name : option_->get_lnames()) info.names.push_back("--" + name);
  if (info.names.empty()) info.names.push_back(option_->get_single_name());
  return info;
}

Command* Command::add_subcommand(std::string_view name, std::string_view description) {
  return &commands_.emplace_back(app_->add_subcommand(std::string(name), std::string(description)));
}

Command* Command::require_subcommand(int count) {
  app_->require_subcommand(count);
  return this;
}

template <typename T>
Option* Command::add_option(std::string_view names, T& variable, std::string_view description) {
  return &options_.emplace_back(
      app_->add_option(std::string(names), variable, std::string(description)));
}

// The types of the variables that options set.
template Option* Command::add_option(std::string_view, std::string&, std::string_view);
template Option* Command::add_option(std::string_view, std::int32_t&, std::string_view);
template Option* Command::add_option(std::string_view, std::int64_t&, std::string_view);
template Option* Command::add_option(std::string_view, std::uint64_t&, std::string_view);
template Option* Command::add_option(std::string_view, float&, std::string_view);
template Option* Command::add_option(std::string_view, double&, std::string_view);
template Option* Command::add_option(std::string_view, std::optional<std::string>&,
                                     std::string_view);
template Option* Command::add_option(std::string_view, std::optional<std::int32_t>&,
                                     std::string_view);
template Option* Command::add_option(std::string_view, std::optional<std::int64_t>&,
                                     std::string_view);
template Option* Command::add_option(std::string_view, std::optional<float>&, std::string_view);
template Option* Command::add_option(std::string_view, std::optional<double>&, std::string_view);
template Option* Command::add_option(std::string_view, std::vector<std::string>&, std::string_view);
template Option* Command::add_option(std::string_view, std::vector<std::int64_t>&,
                                     std::string_view);

Option* Command::add_flag(std::string_view names, bool& variable, std::string_view description) {
  return &options_.emplace_back(
      app_->add_flag(std::string(names), variable, std::string(description)));
}

Option* Command::add_flag(std::string_view names, std::optional<bool>& variable,
                          std::string_view description) {
  // CLI11's own flags of this type count their uses, and start with 0 instead of an empty value.
  const auto set = [&variable](std::int64_t count) { variable = count > 0; };
  CLI::Option* option = app_->add_flag_function(std::string(names), set, std::string(description));
  return &options_.emplace_back(option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast));
}

Command* Command::footer(std::string_view text) {
  app_->footer(std::string(text));
  return this;
}

Command* Command::callback(const std::function<void()>& run) {
  app_->callback(run);
  return this;
}

void Command::finish(const std::string& footer_of_commands) {
  for (const Option& option : options_) option.add_common_checks();
  for (Command& command : commands_) command.finish(footer_of_commands);
  if (!commands_.empty()) return;
  const std::string own = app_->get_footer();
  app_->footer(own + (own.empty() ? "" : "\n") + footer_of_commands);
}

void Command::add_values(std::vector<GivenValue>& values) const {
  for (const Option& option : options_) {
    const bool text = option.option_->get_type_name().starts_with("TEXT");
    if (!text || option.may_be_empty_) continue;
    const std::vector<std::string>& names = option.option_->get_lnames();
    const std::string name = names.empty() ? "" : "--" + names.front();
    for (const std::string& value : option.option_->results()) values.push_back({name, value});
  }
  for (const Command& command : commands_) command.add_values(values);
}

CommandInfo Command::describe() const {
  CommandInfo info{.name = app_->get_name(),
                   .description = app_->get_description(),
                   .footer = app_->get_footer(),
                   .options = {},
                   .commands = {}};
  for (const Option& option : options_) info.options.push_back(option.describe());
  for (const Command& command : commands_) info.commands.push_back(command.describe());
  return info;
}

std::vector<NamedCommand> all_commands(const CommandInfo& command) {
  std::vector<NamedCommand> all = {{.path = command.name, .command = command}};
  for (const CommandInfo& child : command.commands) {
    for (const NamedCommand& below : all_commands(child)) {
      all.push_back({.path = command.name + " " + below.path, .command = below.command});
    }
  }
  return all;
}

CommandInfo Parser::describe() const {
  CommandInfo info = root_.describe();
  // The parser's own flag is not one of the command's options.
  info.options.push_back({.names = {"--version"},
                          .type = {},
                          .choices = {},
                          .description = app_->get_version_ptr()->get_description(),
                          .group = {}});
  return info;
}

Parser::Parser(const std::string& description, const std::string& name, const std::string& version)
    : app_(std::make_unique<CLI::App>(description, name)), root_(app_.get()) {
  app_->require_subcommand(1);
  app_->fallthrough();
  app_->set_version_flag("--version", version);
  app_->option_defaults()->take_last();
  app_->formatter(std::make_shared<HelpFormatter>());  // Commands inherit it.
}

Parser::~Parser() = default;

Result<std::string> Parser::parse(std::vector<std::string> words,
                                  const std::string& footer_of_commands) {
  root_.finish(footer_of_commands);
  std::vector<std::string> reversed(words.rbegin(), words.rend());  // As CLI11 takes them.
  try {
    app_->parse(reversed);
  } catch (const CLI::Success& wanted) {  // --help, --version.
    const std::vector<std::string> extras = app_->remaining(true);
    const bool no_command = !extras.empty() && !names_of_commands(*app_).empty();
    if (no_command || !help_with_letters(words).empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  usage_message(*app_, CLI::ExtrasError(extras), words));
    }
    std::ostringstream answer;
    app_->exit(wanted, answer);
    return answer.str();
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::kInvalidArgument, usage_message(*app_, error, words));
  } catch (const std::invalid_argument&) {  // What CLI11 2.1 makes of "--resume=yes".
    const std::string flag = flag_with_value(*app_, words);
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} takes no value", flag.empty() ? "a flag" : flag));
  }
  const bool file_is_letter = std::ranges::any_of(values(), [](const GivenValue& given) {
    return given.option == "--file" && given.value == "a";
  });
  if (file_is_letter && !file_with_letter(words).empty()) {
    return fail(ErrorCode::kInvalidArgument, usage_message(*app_, CLI::ExtrasError({}), words));
  }
  const std::string flag = flag_with_taken_value(*app_);
  if (!flag.empty()) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} takes no value", flag));
  }
  return std::string();
}

std::string Parser::named_command() const {
  std::string words = app_->get_name();
  for (const CLI::App* at = app_.get(); !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    words += " " + at->get_name();
  }
  return words;
}

std::vector<std::string> Parser::given() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : std::as_const(*app_).get_options()) {
    if (option->count() > 0) names.push_back("--" + option->get_lnames().front());
  }
  return names;
}

std::vector<GivenValue> Parser::values() const {
  std::vector<GivenValue> values;
  root_.add_values(values);
  return values;
}

}  // namespace volta::cli
