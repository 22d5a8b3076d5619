#include "experiments/session/interrupt.h"

#include <csignal>

namespace foretoken {
namespace {

volatile std::sig_atomic_t came = 0;

void note(int signal) {
  came = 1;
  std::signal(signal, SIG_DFL);  // the second one kills
}

// Whoever started the program and had it ignore the signal, as nohup and a script's & do, meant it.
void watch(int signal) {
  struct sigaction now{};
  if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN) return;
  std::signal(signal, note);
}

}  // namespace

void watch_interrupts() {
  watch(SIGINT);
  watch(SIGTERM);
}

void take_full_files_as_errors() { std::signal(SIGXFSZ, SIG_IGN); }

bool interrupted() { return came != 0; }

void forget_interrupts() { came = 0; }

void check_interrupt() {
  if (interrupted()) throw Interrupted();
}

}  // namespace foretoken
