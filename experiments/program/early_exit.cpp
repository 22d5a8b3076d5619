// A library that ends the program, such as a plugin that calls exit(0), would make a command look successful. These
// definitions precede those of the C library for all loaded code: such a call ends the program with a message that
// names the caller, and with exit code 1. The program itself ends by returning from main. Only the executable has these
// definitions, no library.
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "experiments/conformance/workers.h"
#include "experiments/report/terminal.h"

namespace {

const pid_t program = getpid();
std::atomic_flag ending;

[[noreturn]] void end(const char* function, int code, const void* return_address) {
  if (getpid() != program && !foretoken::conformance::is_worker())  // a child whose exec failed
    reinterpret_cast<void (*)(int)>(dlsym(RTLD_NEXT, function))(code);
  while (ending.test_and_set()) pause();  // another thread ends the program
  Dl_info caller{};
  const bool known = dladdr(static_cast<const char*>(return_address) - 1, &caller) != 0 && caller.dli_fname;
  std::fprintf(stderr,
               "foretoken: %s ended the program with %s(%d); a drafter, policy or verifier must throw foretoken::Error "
               "instead; correct or omit it\n",
               foretoken::printable(known ? caller.dli_fname : "a library").c_str(), function, code);
  syscall(SYS_exit_group, 1);
  __builtin_unreachable();
}

}  // namespace

extern "C" {
void exit(int code) noexcept { end("exit", code, __builtin_return_address(0)); }
void quick_exit(int code) noexcept { end("quick_exit", code, __builtin_return_address(0)); }
void _exit(int code) { end("_exit", code, __builtin_return_address(0)); }
void _Exit(int code) noexcept { end("_Exit", code, __builtin_return_address(0)); }
}
