// Ctrl-C in the middle of a sweep: the step in hand is finished, what was measured is kept, the program says so and
// exits with 130. A second Ctrl-C ends it at once, and so does the first where nothing would be lost: only who looks
// watches.
#pragma once
#include <stdexcept>

namespace foretoken {

class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

void watch_interrupts();           // from now on, by somebody who asks what came
bool interrupted();                // Ctrl-C (or SIGTERM) came since
void check_interrupt();            // throws Interrupted if so
void take_full_files_as_errors();  // a write beyond the limit of a file's size fails, which has its sentence, and does
                                   // not end the program

constexpr int kInterruptedExit = 130;

}  // namespace foretoken
