#include "experiments/sweep/conversations.h"

namespace foretoken {

Conversations::Conversations(const std::vector<Job>& jobs) : jobs_(jobs), followers_(jobs.size()), said_(jobs.size()) {
  for (std::size_t i = 0; i < jobs.size(); ++i)
    if (jobs[i].after >= 0)
      followers_[std::size_t(jobs[i].after)].push_back(i);
    else
      ready_.push_back(i);
}

std::size_t Conversations::next() {
  const std::size_t job = ready_.front();
  ready_.pop_front();
  return job;
}

std::vector<Token> Conversations::prompt(std::size_t job) const {
  std::vector<Token> tokens;
  if (const int after = jobs_[job].after; after >= 0) tokens = said_[std::size_t(after)];
  const std::vector<Token>& own = jobs_[job].request.prompt;
  tokens.insert(tokens.end(), own.begin(), own.end());
  return tokens;
}

std::vector<std::size_t> Conversations::ended(std::size_t job, const Sequence& sequence) {
  std::vector<std::size_t> left_out;
  if (sequence.finish != Finish::failed) {
    ready_.insert(ready_.begin(), followers_[job].begin(), followers_[job].end());
    if (!followers_[job].empty())
      said_[job].assign(sequence.tokens.begin(), sequence.tokens.end() - (sequence.finish == Finish::stop_token));
    return left_out;
  }
  for (const std::size_t follower : followers_[job]) {
    left_out.push_back(follower);
    const auto more = ended(follower, sequence);
    left_out.insert(left_out.end(), more.begin(), more.end());
  }
  return left_out;
}

}  // namespace foretoken
