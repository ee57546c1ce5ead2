// Runs the volta binary as a user would: arguments in; exit code, standard output and error out.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace volta::test {

struct CommandResult {
  int exit_code = -1;  ///< 128 + the signal when it was killed by one.
  std::string out;
  std::string err;
  std::int64_t peak_bytes = 0;  ///< The most memory that it had; 0: not measured.
};

/// A running volta.
class Command {
 public:
  /// Starts it in `directory` with extra environment variables, and with a file of that folder as
  /// standard input if one is named.
  Command(const std::vector<std::string>& arguments, const std::string& directory,
          const std::map<std::string, std::string>& environment = {},
          const std::string& input = "");
  void kill(int signal) const;
  /// Whether it has a file of this name mapped into its memory now; whether it has ended.
  bool maps(const std::string& file_name) const;
  bool ended() const;
  /// Waits and collects what it wrote.
  CommandResult wait();

 private:
  int pid_ = -1;
  std::string out_path_;
  std::string err_path_;
};

/// Runs it with a terminal of `columns` as standard input, output and error, with TERM=xterm unless
/// `environment` has another one, and collects in `out` all that the terminal was given.
CommandResult run_on_terminal(const std::vector<std::string>& arguments,
                              const std::string& directory, int columns = 80,
                              const std::map<std::string, std::string>& environment = {});
/// Runs a shell command, in which "$VOLTA" is the binary.
CommandResult run_shell(const std::string& script, const std::string& directory);

/// Starts and waits.
CommandResult run_volta(const std::vector<std::string>& arguments, const std::string& directory,
                        const std::map<std::string, std::string>& environment = {});

}  // namespace volta::test
