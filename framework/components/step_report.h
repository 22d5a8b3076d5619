// The report of one step, returned by Engine::step. Every statistic of the project is computed from these reports.
// This module must not know drafters, policies or verifiers.
#pragma once
#include <cstdint>
#include <vector>

#include "framework/decode/sequence.h"

namespace foretoken {

// Seconds of one step, by phase. Device phases are measured on the device, from the end of the operation before to the
// phase's own end.
struct Phases {
  double schedule = 0;       // scheduling on the host, and what is left of `total`: waiting for the device included
  double draft_forward = 0;  // forwards of drafters' models
  double draft_other = 0;    // the rest of drafting: distributions, draws, trees
  double target_forward = 0;
  double verify = 0;   // the target's distributions and the verifier
  double deliver = 0;  // after the readback: appending tokens, callbacks, accounting
  double total = 0;

  double forwards() const { return draft_forward + target_forward; }
  double overhead() const { return total - forwards(); }
  Phases& operator+=(const Phases& o);
};

// A level of a draft tree at which children were tested: those of the node that was accepted on the level before.
struct TestedLevel {
  int children = 0;   // without absent ones
  int accepted = -1;  // the place of the accepted one among them, from 0; -1: all were rejected
};

// Why a round verified a bare root.
enum class NoDraft : std::uint8_t {
  drafted,  // it did not
  policy,   // the length policy asked for no draft
  end,      // the output ends with the next token, which is never fed
  rows,     // the step had no rows for guesses, or the drafter's model has yet to read earlier tokens
  pages,    // the page pool had no pages for guesses, or none for the drafter's model
  context,  // the context of the drafter's model is full
  states,   // the target has yet to compute what the drafter reads of it: in the first round of an output, or where the
            // target reads earlier tokens again
  nothing,  // the drafter proposed nothing
  count
};
const char* name_of(NoDraft why);  // "policy", "end", ...

// One sequence in one step.
struct SequenceReport {
  SequenceId id = 0;
  int prompt_rows = 0;  // rows fed before the root: prompt tokens, and what the cache lacked
  bool judged = false;  // the tree was verified, and its tokens were appended
  int drafted = 0;      // nodes below the root, without absent ones
  int depth = 0;        // levels of these: positions that could have been accepted
  int accepted = 0;     // accepted nodes that are part of the output; a verifier may accept more than
                        // a stop token or a stop rule leaves (Outcome::verdict has all)
  NoDraft no_draft = NoDraft::drafted;
  bool rejected = false;                 // the accepted path ended at a node whose children were all rejected
  std::vector<TestedLevel> levels = {};  // [tested()], from below the root down, as far as the output goes
  std::vector<Token> emitted;  // what was kept: accepted + 1 tokens; accepted where the output ended with them
  Finish finish = Finish::running;

  int tested() const { return accepted + rejected; }  // levels that were tested, up to a rejection or the output's end
};

struct StepReport {
  std::vector<SequenceReport> sequences;
  std::vector<Sequence> finished;  // whole, in order of completion
  Phases phases;
  int rows = 0;  // of the target's forward
  int cut = 0;   // trees that used all nodes of a budget that was smaller than the policy's, since the step had no more
                 // rows or the pool no more pages
  int waits = 0;                 // times that the host waited for the device
  int recorded = 0;              // forwards that the device recorded for replay; such a step takes longer than others
  int unrecorded = 0;            // forwards that it would have recorded, had Backend::record_new not told it otherwise
  int preempted = 0;             // sequences that gave back their memory and will be recomputed
  int waiting = 0, running = 0;  // after the step
  int pages_in_use = 0;
};

// Returns the report; an Error if a sequence that ended in this step failed. For callers that need every sequence.
StepReport without_failures(StepReport report);

}  // namespace foretoken
