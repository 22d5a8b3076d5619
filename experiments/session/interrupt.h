// Ctrl-C during a sweep: the current step is finished, measured results are kept, and the program reports it and exits
// with 130. A second Ctrl-C ends it at once, and so does the first in commands that do not watch, since they would lose
// nothing.
#pragma once
#include <stdexcept>

namespace foretoken {

class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

void watch_interrupts();           // from now on; the caller must call interrupted() or check_interrupt()
bool interrupted();                // whether Ctrl-C (or SIGTERM) came since
void check_interrupt();            // throws Interrupted if so
void forget_interrupts();          // as if none had come: for a process that goes on after what was interrupted
void take_full_files_as_errors();  // a write beyond the limit of a file's size fails with an error instead of ending
                                   // the program

constexpr int kInterruptedExit = 130;

}  // namespace foretoken
