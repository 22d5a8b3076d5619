#include "kernels/rank.h"

#include <algorithm>
#include <cstring>

#include "kernels/error.h"

namespace foretoken {

void RankGroup::meet(int rank, const Share& share, const std::function<void(std::span<void* const>)>& f) {
  std::unique_lock lock(mutex_);
  throw_failure();
  if (arrived_ == 0) {
    share_ = share;
  } else if (std::strcmp(share_.what, share.what) != 0 || share_.count != share.count) {
    note_failure(
        std::string("the ranks of a divided model went different ways: one brought ") + share_.what + " of " +
        std::to_string(share_.count) + " numbers, another " + share.what + " of " + std::to_string(share.count) +
        "; a component that decides by something else than its requests, as by a clock or by random numbers of "
        "its own, cannot draft for a divided model");
    throw_failure();
  }
  memory_[std::size_t(rank)] = share.memory;
  wait_for_all(lock);
  lock.unlock();
  f(memory_);
  lock.lock();
  wait_for_all(lock);
}

void RankGroup::fail(const std::string& why) {
  const std::lock_guard lock(mutex_);
  note_failure(why);
}

void RankGroup::note_failure(const std::string& why) {
  if (failure_.empty()) failure_ = why;
  for (const auto& f : when_failed_) f();
  changed_.notify_all();
}

void RankGroup::when_failed(std::function<void()> f) {
  const std::lock_guard lock(mutex_);
  when_failed_.push_back(std::move(f));
}

void RankGroup::restart() {
  const std::lock_guard lock(mutex_);
  failure_.clear();
  arrived_ = 0;
}

void RankGroup::wait_for_all(std::unique_lock<std::mutex>& lock) {
  throw_failure();
  if (++arrived_ == size()) {
    arrived_ = 0;
    ++meetings_;
    return changed_.notify_all();
  }
  const std::uint64_t meeting = meetings_;
  changed_.wait(lock, [&] { return meetings_ != meeting || !failure_.empty(); });
  if (meetings_ == meeting) throw_failure();
}

void RankGroup::expect_whole() {
  const std::lock_guard lock(mutex_);
  throw_failure();
}

void RankGroup::throw_failure() const {
  if (!failure_.empty()) throw Error(failure_);
}

void Rank::agree(std::span<double> numbers) const {
  group->meet(number, {"decisions", std::int64_t(numbers.size()), numbers.data()}, [&](std::span<void* const> memory) {
    if (number > 0) std::copy_n(static_cast<const double*>(memory[0]), numbers.size(), numbers.begin());
  });
}

}  // namespace foretoken
