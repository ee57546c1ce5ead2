// Ends the program when no error can be returned: a small allocation fails, or a library throws. It
// writes one line and exits with a code, and never aborts.
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>

#include "command.h"

namespace volta::cli {
namespace {

void write_line(std::string_view text) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

[[noreturn]] void on_out_of_memory() {
  write_line("volta: out of memory\n");
  std::_Exit(exit_code(ErrorCode::kOutOfMemory));
}

[[noreturn]] void on_terminate() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    on_out_of_memory();
  } catch (const std::exception& error) {
    write_line("volta: cannot go on: ");
    write_line(error.what());
    write_line("\n");
  } catch (...) {
    write_line("volta: cannot go on\n");
  }
  std::_Exit(exit_code(ErrorCode::kInternal));
}

// The initialisers of the program and of its shared libraries also allocate, so the handlers are
// installed before the first of them runs.
void install_handlers(int /*argc*/, char** /*argv*/, char** /*environment*/) {
  std::set_new_handler(on_out_of_memory);
  std::set_terminate(on_terminate);
}
[[gnu::section(".preinit_array"),
  gnu::used]] void (*const g_first_of_all)(int, char**, char**) = install_handlers;

}  // namespace
}  // namespace volta::cli
