// Ranks: threads of one process, each with a device of its own, among which a model is divided. Here they meet. This
// module must not know devices or models.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace foretoken {

class RankGroup {
 public:
  explicit RankGroup(int size) : memory_(static_cast<std::size_t>(size)) {}
  int size() const { return int(memory_.size()); }

  // What one rank brings to a meeting: all must bring as much of the same.
  struct Share {
    const char* what = "";
    std::int64_t count = 0;
    void* memory = nullptr;
  };
  // Waits for all ranks, calls f with the memory of each in their order, at once on all of them, and waits until it has
  // returned everywhere. Ranks that bring different shares, and whatever fail() ends, are an Error.
  void meet(int rank, const Share& share, const std::function<void(std::span<void* const>)>& f);
  // Ends all meetings, present and later ones, with this reason. The first one stays.
  void fail(const std::string& why);
  // Calls f on every failure from now on. It must not call the group.
  void when_failed(std::function<void()> f);
  // Forgets a failure. No rank may be in a meeting.
  void restart();
  void expect_whole();  // throws Error after a failure

 private:
  void wait_for_all(std::unique_lock<std::mutex>& lock);
  void note_failure(const std::string& why);
  void throw_failure() const;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<void*> memory_;  // by rank
  Share share_;                // of the meeting that gathers
  int arrived_ = 0;
  std::uint64_t meetings_ = 0;  // times that all were there
  std::string failure_;
  std::vector<std::function<void()>> when_failed_;
};

// One of them.
struct Rank {
  std::shared_ptr<RankGroup> group;
  int number = 0;  // from 0
  int size() const { return group->size(); }
  // Every rank's numbers become those of rank 0: what one of them alone can decide.
  void agree(std::span<double> numbers) const;
};

}  // namespace foretoken
