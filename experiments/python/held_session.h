// A Session as Python holds it: whoever lets go of it last, on whichever thread, in whichever process, it ends without
// waiting for itself.
#pragma once
#include <memory>
#include <string>

#include <sys/types.h>

#include "experiments/python/session.h"

namespace foretoken::python {

class HeldSession {
 public:
  // Under the interpreter's lock, both. `document`: JSON.
  HeldSession(const std::string& document, const std::string& beside);
  // Waits for the end of the step without the lock. On the thread of a loop, where a component let go of the engine, a
  // thread of its own waits instead (wait_for_endings). In a process that was forked from its own nothing is ended:
  // the thread that would end is not there.
  ~HeldSession();
  HeldSession(const HeldSession&) = delete;
  Session* operator->() const { return session_.get(); }

 private:
  std::unique_ptr<Session> session_;
  ::pid_t process_;
};

// Waits at most so many seconds, without the interpreter's lock, for sessions that end on threads of their own; whether
// all have. Before the interpreter ends, since components are freed under its lock.
bool wait_for_endings(double seconds);

}  // namespace foretoken::python
