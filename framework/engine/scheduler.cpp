#include "framework/engine/scheduler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/error.h"

namespace foretoken {
namespace {

// One call of Scheduler::next.
class Round {
 public:
  Round(Queues& queues, Scheduler::Memory& memory, int longest, int rows)
      : queues_(queues), memory_(memory), longest_(longest), left_(rows) {}

  // Sequences that only lack their last token go first, so that nobody's prompt delays them; and their guesses leave a
  // row to everybody else who may run, so that nobody waits for guesses.
  void running(int batch) {
    std::vector<int> unseen;
    unseen.reserve(queues_.running.size()), plan.scheduled.reserve(queues_.running.size());
    for (const auto& a : queues_.running) unseen.push_back(memory_.unseen(a->sequence));
    int others = std::min(batch, int(queues_.running.size() + queues_.waiting.size()));
    // Whoever gives way stood at the end of `running`, behind all that are still to come.
    for (std::size_t i = 0; i < queues_.running.size(); ++i) {
      if (unseen[i] > 1) continue;
      others = std::max(0, others - 1);
      schedule(*queues_.running[i], 1, left_ - others);
    }
    for (std::size_t i = 0; i < queues_.running.size(); ++i)
      if (unseen[i] > 1) schedule(*queues_.running[i], unseen[i], left_);
  }

  void admit(int batch) {
    while (int(queues_.running.size()) < batch && left_ > 0) {
      const auto next = std::ranges::find(queues_.waiting, SequenceId(0), &Active::like);
      if (next == queues_.waiting.end()) return;
      Active& a = **next;
      const Scheduled entry = shape(a, memory_.unseen(a.sequence), left_);
      const bool alone = queues_.running.empty();
      if (!memory_.reserve(a.sequence, entry.chain + entry.root + entry.cap, alone)) {
        if (alone) too_small(a.sequence);
        memory_.release(a.sequence);  // a prefix that it found stays idle, not in use
        return;
      }
      queues_.running.push_back(std::move(*next));
      queues_.waiting.erase(next);
      take(entry);
    }
  }

  Plan plan;

 private:
  Scheduled shape(Active& a, int unseen, int rows) const {
    Scheduled entry{&a, std::min(unseen - 1, rows), unseen <= rows, 0};
    if (entry.root)
      entry.cap = std::clamp(std::min(longest_, rows - unseen), 0, std::max(0, a.sequence.remaining() - 1));
    return entry;
  }

  void take(const Scheduled& entry) {
    left_ -= entry.chain + entry.root + entry.cap;
    plan.scheduled.push_back(entry);
  }

  // When pages are short, room for guesses goes first; then sequences newer than this one give way to it; if it is the
  // newest itself, it gives way.
  void schedule(Active& a, int unseen, int rows) {
    if (rows <= 0) return;
    Scheduled entry = shape(a, unseen, rows);
    while (!memory_.reserve(a.sequence, entry.chain + entry.root + entry.cap, true)) {
      if (std::exchange(entry.cap, 0) > 0) continue;
      const Active* const newest = queues_.running.back().get();
      if (queues_.running.size() == 1) too_small(a.sequence);
      preempt();
      if (newest == &a) return;
    }
    take(entry);
  }

  [[noreturn]] static void too_small(const Sequence& s) {
    throw Error(
        "the page pool is too small for one sequence of " + std::to_string(s.length()) +
        " tokens; raise \"memory_mib\" of the engine (\"memory_fraction\" where that is set) or shorten the request");
  }

  // The newest sequence gives back its memory and waits, first in line, to be recomputed.
  void preempt() {
    auto newest = std::move(queues_.running.back());
    queues_.running.pop_back();
    std::erase_if(plan.scheduled, [&](const Scheduled& s) {
      if (s.active != newest.get()) return false;
      left_ += s.chain + s.root + s.cap;
      return true;
    });
    memory_.release(newest->sequence);
    queues_.waiting.push_front(std::move(newest));
    ++plan.preempted;
  }

  Queues& queues_;
  Scheduler::Memory& memory_;
  int longest_, left_;
};

}  // namespace

Active* Queues::find(SequenceId id) const {
  const auto is = [id](const auto& a) { return a->sequence.id == id; };
  if (const auto it = std::ranges::find_if(running, is); it != running.end()) return it->get();
  if (const auto it = std::ranges::find_if(waiting, is); it != waiting.end()) return it->get();
  return nullptr;
}

void Queues::followers_may_begin(Active& first) {
  if (!std::exchange(first.leads, false)) return;
  for (const auto& a : waiting)
    if (a->like == first.sequence.id) a->like = 0;
}

std::vector<int> shares(std::span<const int> wanted, int rows) {
  std::vector<std::size_t> order(wanted.size());
  std::iota(order.begin(), order.end(), std::size_t(0));
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return wanted[i]; });
  std::vector<int> given(wanted.size());
  for (std::size_t k = 0; k < order.size(); ++k) {
    given[order[k]] = std::min(wanted[order[k]], rows / int(order.size() - k));
    rows -= given[order[k]];
  }
  return given;
}

Plan Scheduler::next(Queues& queues, Memory& memory, int longest) const {
  Round round(queues, memory, longest, step_rows_);
  round.running(batch_);
  round.admit(batch_);
  return std::move(round.plan);
}

}  // namespace foretoken
