#include <csignal>
#include <memory>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <pthread.h>

#include "experiments/python/bindings.h"
#include "experiments/python/components.h"
#include "experiments/python/experiments.h"
#include "experiments/python/plugins.h"
#include "experiments/session/run_document.h"

namespace foretoken::python {

namespace nb = nanobind;
using nlohmann::json;
using nb::literals::operator""_a;

namespace {

// The handlers of Ctrl-C and of the signal to end, as they were.
class Handlers {
 public:
  Handlers() : interrupt_(PyOS_getsig(SIGINT)), end_(PyOS_getsig(SIGTERM)) {}
  ~Handlers() { PyOS_setsig(SIGINT, interrupt_), PyOS_setsig(SIGTERM, end_); }
  Handlers(const Handlers&) = delete;

 private:
  PyOS_sighandler_t interrupt_, end_;
};

nb::dict sweep(const std::string& document, const std::string& file, std::vector<std::string> set,
               const std::string& results, bool quiet, bool keep_going, bool share_baselines, bool rehearse) {
  const SweepCall call{prepared(nlohmann::ordered_json::parse(document)).dump(),
                       file,
                       std::move(set),
                       results,
                       quiet,
                       keep_going,
                       share_baselines,
                       rehearse};
  const Handlers handlers;
  SweepResult result;
  {
    const nb::gil_scoped_release unlocked;
    result = run_sweep(call, registries());
  }
  nb::dict d;
  d["runs"] = result.runs;
  d["failed"] = result.failed;
  d["refused"] = result.refused;
  d["interrupted"] = result.interrupted;
  return d;
}

// Processes of a check are forked by C++: the interpreter is told, as os.fork() tells it.
bool forking = false;
void before_fork() {
  if (forking) PyOS_BeforeFork();
}
void after_fork_in_parent() {
  if (forking) PyOS_AfterFork_Parent();
}
void after_fork_in_child() {
  if (forking) PyOS_AfterFork_Child();
}

// Under the interpreter's lock, in a process that has no other thread: foretoken.check() forks one for it.
std::string check(const std::string& drafter, const std::string& policy, const std::string& verifier,
                  std::vector<std::string> laws, double seconds, int threads) {
  static const int told = ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  (void)told;
  const CheckCall call{
      json::parse(drafter), json::parse(policy), json::parse(verifier), std::move(laws), seconds, threads};
  forking = true;
  const auto done = [] { forking = false; };
  try {
    // A process that runs scenarios never comes back from them, so it gives the lock back and takes it for each call.
    std::string report = check_report(call, registries(), [] {
      forking = false;
      PyEval_SaveThread();
    });
    done();
    return report;
  } catch (...) {
    done();
    throw;
  }
}

}  // namespace

void bind_experiments(nb::module_& m) {
  m.def("sweep", &sweep, "document"_a, "file"_a, "set"_a, "results"_a, "quiet"_a, "keep_going"_a, "share_baselines"_a,
        "rehearse"_a);
  m.def("results", &results_json, "files"_a, "where"_a, nb::call_guard<nb::gil_scoped_release>());
  m.def("check", &check, "drafter"_a, "policy"_a, "verifier"_a, "laws"_a, "seconds"_a, "threads"_a);
  m.def("read_document", [](const std::string& file) { return read_document(file).dump(); }, "file"_a);
  m.def("components", [] {
    const Registries all = registries();
    nb::dict d;
    d["drafters"] = all.drafters.names();
    d["policies"] = all.policies.names();
    d["verifiers"] = all.verifiers.names();
    return d;
  });
}

}  // namespace foretoken::python
