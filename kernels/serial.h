// A number that nothing else of this process has, not even something that lies later at the same address.
#pragma once
#include <atomic>
#include <cstdint>

namespace foretoken {

class Serial {
 public:
  Serial() = default;
  Serial(const Serial&) = delete;
  std::uint64_t number() const { return number_; }

 private:
  static inline std::atomic<std::uint64_t> next_{0};
  const std::uint64_t number_ = next_++;
};

}  // namespace foretoken
