#include "experiments/sweep/interrupt.h"

#include <csignal>

namespace foretoken {
namespace {

volatile std::sig_atomic_t came = 0;

void note(int signal) {
  came = 1;
  std::signal(signal, SIG_DFL);  // the second one kills
}

}  // namespace

void watch_interrupts() {
  std::signal(SIGINT, note);
  std::signal(SIGTERM, note);
}

void take_full_files_as_errors() { std::signal(SIGXFSZ, SIG_IGN); }

bool interrupted() { return came != 0; }

void check_interrupt() {
  if (interrupted()) throw Interrupted();
}

}  // namespace foretoken
