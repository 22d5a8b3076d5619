// The scheduler decides which sequences run in the next step, and with how many rows. Sequences run first come, first
// served; prompts are read in chunks under a bound of rows per step; when pages run out, the newest sequence gives back
// its memory and is recomputed later. This module must not know models, drafters or devices; it reserves memory through
// `Memory`.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "framework/components/step_report.h"
#include "framework/decode/draft_tree.h"
#include "framework/decode/sequence.h"

namespace foretoken {

// A request in the engine.
struct Active {
  Sequence sequence;
  std::function<void(const Sequence&, std::span<const Token>)> on_tokens;  // the tokens of each round
  SequenceId sample_of = 0;       // waits until that sequence has read their common prompt; 0: waits for none
  bool leads = false;             // others may wait for this sequence
  int rounds = 0;                 // rounds that were verified
  int drafted = 0, accepted = 0;  // nodes below the root of the last round
  long tested_in_all = 0, accepted_in_all = 0;
};

struct Queues {
  std::deque<std::unique_ptr<Active>> waiting;
  std::vector<std::unique_ptr<Active>> running;  // oldest first

  Active* find(SequenceId id) const;  // null where no request has this id
  // Ends the wait of the requests whose `like` is this sequence.
  void release_followers(Active& first);
};

struct Scheduled {
  Active* active = nullptr;
  int chain = 0;                // tokens fed before the root
  bool root = false;            // the last token is fed too, and the sequence gets a verdict
  Budget room;                  // the largest budget of the tree, its root included; {} where the root is not fed
  Budget wanted{};              // the policy's budget
  Budget budget{};              // the policy's budget, cut to `room`
  bool short_of_pages = false;  // `room` has fewer nodes than rows would allow
  bool catches_up = false;      // the drafter's model gets fewer rows than it has tokens to read
  NoDraft no_draft = NoDraft::drafted;  // of the tree that the drafter returned
  int rows() const { return chain + room.nodes; }
};

struct Plan {
  std::vector<Scheduled> scheduled;
  int preempted = 0;
};

// Shares `rows` fairly (max-min fairness): each gets what it wants where the sum fits; else small wants are met first,
// and the rest is shared evenly.
std::vector<int> shares(std::span<const int> wanted, int rows);

class Scheduler {
 public:
  // The caches, as the scheduler needs them.
  class Memory {
   public:
    virtual ~Memory() = default;
    virtual int unseen(const Sequence& sequence) = 0;  // tokens that the target's cache lacks, >= 1
    // Reserves pages for `rows` more rows; false, and nothing reserved, where there are not enough. `evict_drafts`:
    // takes the pages of drafters' caches if necessary; never set for rows of guesses.
    virtual bool reserve(const Sequence& sequence, int rows, bool evict_drafts) = 0;
    virtual void release(
        Sequence& sequence) = 0;  // all memory of the sequence, everywhere; the sequence may fail meanwhile
  };

  // The most rows of a step: `all` together, `judged` of roots and trees among them, `prompts` of tokens before a root.
  // The first two are at least the batch, the third at least 1.
  struct Rows {
    int all, judged = 1 << 30, prompts = 1 << 30;
  };
  Scheduler(int batch, const Rows& rows) : batch_(batch), rows_(rows) {}
  // The plan of the next step. `most`: the largest budget of a tree; at least a root. A sequence for which the pool is
  // too small even alone is an Error.
  Plan next(Queues& queues, Memory& memory, const Budget& most) const;

 private:
  int batch_;
  Rows rows_;
};

}  // namespace foretoken
