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

std::vector<std::size_t> Conversations::from(std::size_t job) const {
  std::vector<std::size_t> all{job};
  for (std::size_t i = 0; i < all.size(); ++i)
    all.insert(all.end(), followers_[all[i]].begin(), followers_[all[i]].end());
  return all;
}

std::vector<std::size_t> Conversations::ended(std::size_t job, const Sequence& sequence) {
  if (sequence.finish == Finish::failed) {
    std::vector<std::size_t> later = from(job);
    later.erase(later.begin());
    return later;
  }
  ready_.insert(ready_.begin(), followers_[job].begin(), followers_[job].end());
  if (!followers_[job].empty())
    said_[job].assign(sequence.tokens.begin(), sequence.tokens.end() - (sequence.finish == Finish::stop_token));
  return {};
}

}  // namespace foretoken
