// The requests of an engine, each with its owner, in the hands of one thread: it submits, takes a step, and hands the
// step's report out, when it wants to. No lock and no clock. The thread of an EngineLoop drives one. So does a
// measurement, without a second thread: that would take a processor from the device, a request would enter an earlier
// or a later step by how soon a thread wakes up, so that outputs of a seed were not repeatable where a batch may change
// them, and queues between the threads would stand in the time of steps.
#pragma once
#include <unordered_map>
#include <utility>

#include "framework/engine/engine.h"

namespace foretoken {

template <class Owner> class EngineRequests {
 public:
  // Nothing else may submit to the engine, which must outlive it.
  explicit EngineRequests(Engine& engine) : engine_(engine) {}

  // Errors as of Engine::submit().
  SequenceId submit(Request request, Owner owner) {
    const SequenceId id = engine_.submit(std::move(request));
    owners_.emplace(id, std::move(owner));
    return id;
  }
  // Of a request that was submitted and whose end was not handed out.
  Owner& of(SequenceId id) { return owners_.at(id); }
  const Owner& of(SequenceId id) const { return owners_.at(id); }
  template <class F> void each(const F& f) {
    for (auto& [id, owner] : owners_) f(id, owner);
  }

  // Of a step's report: f(owner, SequenceReport) for each request that has tokens, or an end. Here and below requests
  // that another had submitted and let go of have no owner, and are passed over.
  template <class F> void each_round(const StepReport& report, const F& f) {
    for (const SequenceReport& r : report.sequences) {
      if (r.emitted.empty() && r.finish == Finish::running) continue;
      if (const auto owner = owners_.find(r.id); owner != owners_.end()) f(owner->second, r);
    }
  }
  // Then f(owner, Sequence) for each request that has ended, which has no owner any more.
  template <class F> void each_end(const StepReport& report, const F& f) {
    for (const Sequence& q : report.finished)
      if (auto owner = owners_.extract(q.id)) f(std::move(owner.mapped()), q);
  }
  // Cancels them all; the engine's next step lets go of them.
  void let_go() {
    for (const auto& [id, owner] : owners_) engine_.cancel(id);
    owners_.clear();
  }

 private:
  Engine& engine_;
  std::unordered_map<SequenceId, Owner> owners_;
};

}  // namespace foretoken
