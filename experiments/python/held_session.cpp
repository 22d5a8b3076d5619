#include "experiments/python/held_session.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#include <nanobind/nanobind.h>
#include <unistd.h>

#include "experiments/python/components.h"
#include "experiments/python/plugins.h"

namespace foretoken::python {

using nlohmann::json;

namespace {

// Sessions of one process that end on threads of their own.
struct Endings {
  ::pid_t process = ::getpid();
  std::mutex mutex;
  std::condition_variable fewer;
  int count = 0;

  void done() {
    const std::lock_guard lock(mutex);
    --count;
    fewer.notify_all();
  }
};

// Under the interpreter's lock. Never freed: threads may still be ending when the process does, and a forked process
// has what another one's threads had locked.
Endings& endings() {
  static Endings* one = new Endings;
  if (one->process != ::getpid()) one = new Endings;
  return *one;
}

void end_elsewhere(std::unique_ptr<Session> session, Endings& endings) {
  {
    const std::lock_guard lock(endings.mutex);
    ++endings.count;
  }
  Session* const ending = session.release();
  try {
    std::thread([ending, &endings] {
      delete ending;
      endings.done();
    }).detach();
  } catch (const std::system_error&) {  // no thread is to be had: it stays, and harms nobody
    endings.done();
  }
}

}  // namespace

HeldSession::HeldSession(const std::string& document, const std::string& beside) : process_(::getpid()) {
  const json run = json::parse(prepared(nlohmann::ordered_json::parse(document)).dump());
  const nb::gil_scoped_release unlocked;
  session_ = std::make_unique<Session>(run, registries(), beside);
}

HeldSession::~HeldSession() {
  if (process_ != ::getpid()) {
    (void)session_.release();
    return;
  }
  Endings& elsewhere = endings();
  const nb::gil_scoped_release unlocked;
  if (EngineLoop::is_on_loop_thread())
    end_elsewhere(std::move(session_), elsewhere);
  else
    session_.reset();
}

bool wait_for_endings(double seconds) {
  Endings& all = endings();
  const nb::gil_scoped_release unlocked;
  std::unique_lock lock(all.mutex);
  return all.fewer.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return all.count == 0; });
}

}  // namespace foretoken::python
