// Ctrl-C in the middle of a sweep: the step in hand is finished, what was measured is kept, the program says so and exits
// with 130. A second Ctrl-C ends it at once.
#pragma once
#include <stdexcept>

namespace foretoken {

class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

void watch_interrupts();  // from now on; also lets a write beyond the limit of a file's size fail instead of ending the program
bool interrupted();       // Ctrl-C (or SIGTERM) came since
void check_interrupt();   // throws Interrupted if so

constexpr int kInterruptedExit = 130;

}  // namespace foretoken
