#include "framework/engine/scheduler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/error.h"

namespace foretoken {
namespace {

// One call of Scheduler::next.
class Planning {
 public:
  // One row is kept for every sequence that may run; of the others each running sequence has an even share for guesses.
  Planning(Queues& queues, Scheduler::Memory& memory, const Budget& most, int batch, const Scheduler::Rows& rows)
      : queues_(queues), memory_(memory), most_(most), left_(rows.all), prompts_(rows.prompts) {
    const int running = int(queues.running.size()), all = std::min(batch, running + int(queues.waiting.size()));
    guesses_ = std::max(0, std::min(rows.all, rows.judged) - all);
    share_ = guesses_ / std::max(1, running > 0 ? running : all);
  }

  // Decoding sequences, which lack their last token only, are scheduled before those that read prompts, so that prompts
  // do not delay them. What one of them does not use of its share goes to those after it.
  void running() {
    std::vector<int> unseen;
    unseen.reserve(queues_.running.size()), plan.scheduled.reserve(queues_.running.size());
    for (const auto& a : queues_.running) unseen.push_back(memory_.unseen(a->sequence));
    int decoding = int(std::ranges::count_if(unseen, [](int n) { return n <= 1; }));
    const int reading = int(unseen.size()) - decoding, kept = reading > 0 ? guesses_ - decoding * share_ : 0;
    // A preempted sequence was the last of `running`, so no index before it changes.
    for (std::size_t i = 0; i < queues_.running.size(); ++i)
      if (unseen[i] <= 1) schedule(*queues_.running[i], 1, (guesses_ - kept + decoding - 1) / decoding), --decoding;
    for (std::size_t i = 0; i < queues_.running.size(); ++i)
      if (unseen[i] > 1) schedule(*queues_.running[i], unseen[i], std::min(guesses_, share_));
  }

  void admit(int batch) {
    while (int(queues_.running.size()) < batch && left_ > 0 && prompts_ > 0) {
      const auto next = std::ranges::find(queues_.waiting, SequenceId(0), &Active::sample_of);
      if (next == queues_.waiting.end()) return;
      Active& a = **next;
      Scheduled entry = shape(a, memory_.unseen(a.sequence), std::min(guesses_, share_));
      const bool alone = queues_.running.empty();
      if (!reserve_guesses(entry) && !memory_.reserve(a.sequence, entry.rows(), alone)) {
        if (alone) too_small(a.sequence);
        memory_.release(a.sequence);  // the pages of a prefix that it found become idle
        return;
      }
      queues_.running.push_back(std::move(*next));
      queues_.waiting.erase(next);
      take(entry);
    }
  }

  Plan plan;

 private:
  Scheduled shape(Active& a, int unseen, int guesses) const {
    const int chain = std::min({unseen - 1, left_, prompts_});
    Scheduled entry{&a, chain, chain == unseen - 1 && chain < left_, {}};
    if (!entry.root) return entry;
    // The last token of an output is never fed, so it needs no row.
    entry.room.depth = std::clamp(a.sequence.remaining() - 1, 0, most_.depth);
    entry.room.nodes = entry.room.depth > 0 ? std::min(most_.nodes, 1 + std::min(guesses, left_ - unseen)) : 1;
    return entry;
  }

  void take(const Scheduled& entry) {
    left_ -= entry.rows(), prompts_ -= entry.chain, guesses_ -= std::max(0, entry.room.nodes - 1);
    plan.scheduled.push_back(entry);
  }

  // Reserves free pages for a tree: halves its nodes until they suffice, but tries a chain of the whole depth before
  // anything smaller. False where the tree would be a bare root, for which the caller reserves.
  bool reserve_guesses(Scheduled& entry) {
    const int chain = entry.room.depth + 1;
    for (int& nodes = entry.room.nodes; nodes > 1; nodes = nodes > chain ? std::max(nodes / 2, chain) : nodes / 2) {
      if (memory_.reserve(entry.active->sequence, entry.rows(), false)) return true;
      entry.short_of_pages = true;
    }
    return false;
  }

  // When pages are short, the sequence is scheduled without guesses; then newer sequences are preempted, newest first;
  // if it is the newest itself, it is preempted.
  void schedule(Active& a, int unseen, int guesses) {
    Scheduled entry = shape(a, unseen, guesses);
    if (entry.rows() == 0) return;
    if (reserve_guesses(entry)) return take(entry);
    while (!memory_.reserve(a.sequence, entry.rows(), true)) {
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

  // The newest sequence gives back its memory and becomes the first of the waiting ones, to be recomputed.
  void preempt() {
    memory_.release(queues_.running.back()->sequence);  // first: it may throw
    auto newest = std::move(queues_.running.back());
    queues_.running.pop_back();
    std::erase_if(plan.scheduled, [&](const Scheduled& s) {
      if (s.active != newest.get()) return false;
      left_ += s.rows(), prompts_ += s.chain, guesses_ += std::max(0, s.room.nodes - 1);
      return true;
    });
    queues_.waiting.push_front(std::move(newest));
    ++plan.preempted;
  }

  Queues& queues_;
  Scheduler::Memory& memory_;
  Budget most_;
  int left_;     // rows that are not planned yet
  int prompts_;  // of these, the most for tokens before a root
  int guesses_;  // and the most for guesses
  int share_;    // of `guesses_`, of one sequence
};

}  // namespace

Active* Queues::find(SequenceId id) const {
  const auto is = [id](const auto& a) { return a->sequence.id == id; };
  if (const auto it = std::ranges::find_if(running, is); it != running.end()) return it->get();
  if (const auto it = std::ranges::find_if(waiting, is); it != waiting.end()) return it->get();
  return nullptr;
}

void Queues::release_followers(Active& first) {
  if (!std::exchange(first.leads, false)) return;
  for (const auto& a : waiting)
    if (a->sample_of == first.sequence.id) a->sample_of = 0;
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

Plan Scheduler::next(Queues& queues, Memory& memory, const Budget& most) const {
  Planning round(queues, memory, most, batch_, rows_);
  round.running();
  round.admit(batch_);
  return std::move(round.plan);
}

}  // namespace foretoken
