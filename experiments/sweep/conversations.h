// Which requests of a run can start: those of a prompt's later turns only once the turn before has been answered. This
// module must not know engines or how requests are measured.
#pragma once
#include <deque>
#include <span>
#include <vector>

#include "experiments/sweep/measure.h"

namespace foretoken {

class Conversations {
 public:
  // `jobs` must outlive it; a job comes after the job that it goes on from.
  explicit Conversations(const std::vector<Job>& jobs);

  // Whether a request can start now.
  bool ready() const { return !ready_.empty(); }
  // The next request to start. Those that go on with a conversation come first, then the others, in their order.
  std::size_t next();
  // The prompt of a job that next() returned: of a later turn, the prompt and the output of the turn before, without
  // the stop token that ended it, and then the job's own tokens.
  std::vector<Token> prompt(std::size_t job) const;
  // A job that next() returned and that does not start, and the turns after it.
  std::vector<std::size_t> from(std::size_t job) const;
  // The job's request has ended. Returns the jobs that never start because it failed: the turns after it.
  std::vector<std::size_t> ended(std::size_t job, const Sequence& sequence);

 private:
  const std::vector<Job>& jobs_;
  std::vector<std::vector<std::size_t>> followers_;  // of each job
  std::vector<std::vector<Token>> said_;             // of each job that has followers, once it has ended
  std::deque<std::size_t> ready_;
};

}  // namespace foretoken
