// What one step did: returned by Engine::step, never woven into the engine. Every statistic of the project derives from
// it.
#pragma once
#include <vector>

#include "framework/decode/sequence.h"

namespace foretoken {

// Seconds of one step. Forwards are the models' own time; the rest is the engine's. What a device does is measured on
// the device: from the end of what came before to its own end.
struct Phases {
  double schedule = 0;       // the host before the device begins, and waiting for its answer
  double draft_forward = 0;  // in forwards of drafters' models
  double draft_other = 0;    // the rest of drafting: distributions, draws, trees
  double target_forward = 0;
  double verify = 0;   // the target's distributions and the verifier
  double deliver = 0;  // appending, callbacks, books
  double total = 0;

  double forwards() const { return draft_forward + target_forward; }
  double overhead() const { return total - forwards(); }
  Phases& operator+=(const Phases& o);
};

// One sequence in one step.
struct SequenceReport {
  SequenceId id = 0;
  int prompt_rows = 0;         // fed without being judged
  bool judged = false;         // a distribution was asked for: at least one token was emitted
  int drafted = 0;             // nodes below the root, without absent ones
  int depth = 0;               // levels of them: positions that could have been accepted
  int accepted = 0;            // accepted nodes, before any stop cut them
  bool refused = false;        // the accepted path ended at a node whose children were tested, and all rejected
  std::vector<Token> emitted;  // what stayed of accepted + 1 tokens
  Finish finish = Finish::running;

  int tested() const { return accepted + refused; }  // levels that were tested, up to the first rejection
};

struct StepReport {
  std::vector<SequenceReport> sequences;
  std::vector<Sequence> finished;  // whole, in order of completion
  Phases phases;
  int rows = 0;   // of the target's forward
  int cut = 0;    // trees that filled what they were given, but were given fewer nodes than the policy asked for, since
                  // the step had no more rows or the pool no more pages
  int waits = 0;  // times that the host waited for the device
  int recorded =
      0;  // forwards that the device recorded in order to replay them: a step that takes longer than its like
  int preempted = 0;
  int waiting = 0, running = 0;  // after the step
  int pages_in_use = 0;
};

}  // namespace foretoken
