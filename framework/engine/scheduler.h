// Who runs in the next step, and with how many rows. First come, first served; prompts in chunks under a budget of rows
// per step; when pages run out the newest sequence gives back its memory and is recomputed later. This room must not
// know models, drafters' names or devices; memory is asked for through `Memory`.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

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
  int cap = 0;        // nodes that may follow the root
  int budget = 0;     // of these, what the policy wants
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
    // Room for `rows` more; false: there is none. `insist`: drafters give theirs back first.
    virtual bool reserve(const Sequence& sequence, int rows, bool insist) = 0;
    virtual void release(const Sequence& sequence) = 0;  // all memory of the sequence, everywhere
  };

  Scheduler(int batch, int step_rows) : batch_(batch), step_rows_(step_rows) {}
  // `longest`: the most nodes that a draft may have. A sequence that does not fit alone is an Error.
  Plan next(Queues& queues, Memory& memory, int longest) const;

 private:
  int batch_, step_rows_;
};

}  // namespace foretoken
