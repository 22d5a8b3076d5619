// Who runs in the next step, and with how many rows. First come, first served; prompts in chunks under a budget of rows
// per step; when pages run out the newest sequence gives back its memory and is recomputed later. This room must not
// know models, drafters' names or devices; memory is asked for through `Memory`.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "framework/decode/draft_tree.h"
#include "framework/decode/sequence.h"

namespace foretoken {

// A request in the engine.
struct Active {
  Sequence sequence;
  std::function<void(const Sequence&, std::span<const Token>)> on_tokens;  // as they come
  SequenceId like = 0;                        // waits until that sequence has read their prompt; 0: for nobody
  bool leads = false;                         // somebody may wait for this one
  int rounds = 0, drafted = 0, accepted = 0;  // of the last round: drafted, accepted
  long tested_in_all = 0, accepted_in_all = 0;
};

struct Queues {
  std::deque<std::unique_ptr<Active>> waiting;
  std::vector<std::unique_ptr<Active>> running;  // oldest first

  Active* find(SequenceId id) const;  // null where nobody has it
  void followers_may_begin(Active& first);
};

struct Scheduled {
  Active* active = nullptr;
  int chain = 0;      // tokens fed before the root
  bool root = false;  // the last token is fed too: a distribution is asked for, and a tree may follow
  Budget room;        // for the tree, its root included; nothing where the root is not fed
  Budget wanted{};    // by the policy
  Budget budget{};    // of that, what there is room for
  int rows() const { return chain + room.nodes; }
};

struct Plan {
  std::vector<Scheduled> scheduled;
  int preempted = 0;
};

// Of `rows` in all, what each gets of what it wants: all of it where there is enough for everybody, else no more than
// the others who want as much.
std::vector<int> shares(std::span<const int> wanted, int rows);

class Scheduler {
 public:
  // What the scheduler needs to know about memory.
  class Memory {
   public:
    virtual ~Memory() = default;
    virtual int unseen(const Sequence& sequence) = 0;  // tokens that the target's cache lacks, >= 1
    // Room for `rows` more; false: there is none. `insist`: drafters give theirs back first, which no guess may ask
    // for.
    virtual bool reserve(const Sequence& sequence, int rows, bool insist) = 0;
    virtual void release(Sequence& sequence) = 0;  // all memory of the sequence, everywhere; it may fail meanwhile
  };

  // `judged_rows`: the most rows of roots and their trees, where that is less than `step_rows`; neither is less than
  // `batch`.
  Scheduler(int batch, int step_rows, int judged_rows = 1 << 30)
      : batch_(batch), step_rows_(step_rows), judged_rows_(judged_rows) {}
  // `most`: the largest budget of a draft; at least a root. A sequence that does not fit alone is an Error.
  Plan next(Queues& queues, Memory& memory, const Budget& most) const;

 private:
  int batch_, step_rows_, judged_rows_;
};

}  // namespace foretoken
