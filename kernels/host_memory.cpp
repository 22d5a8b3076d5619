#include "kernels/host_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace foretoken {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

// The number after `key` in a file of "key number" lines, or the first number where `key` is empty; `otherwise` where
// there is none ("max" is not a number).
std::int64_t number(const std::filesystem::path& file, const std::string& key, std::int64_t otherwise) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    try {
      return std::stoll(line.substr(key.size()));
    } catch (const std::exception&) {
      return otherwise;
    }
  }
  return otherwise;
}

// What a control group may still use. Its usage includes files in its page cache, which it can drop.
std::int64_t left(std::int64_t most, std::int64_t used, std::int64_t droppable) {
  return most >= kUnlimited / 2 ? kUnlimited : std::max<std::int64_t>(0, most - used + droppable);
}

}  // namespace

std::int64_t free_host_memory(const std::filesystem::path& root) {
  const std::int64_t available = number(root / "proc/meminfo", "MemAvailable:", 0) << 10;
  const auto two = root / "sys/fs/cgroup", one = two / "memory";
  return std::min(
      {available,
       left(number(two / "memory.max", "", kUnlimited), number(two / "memory.current", "", 0),
            number(two / "memory.stat", "inactive_file ", 0)),
       left(number(one / "memory.limit_in_bytes", "", kUnlimited), number(one / "memory.usage_in_bytes", "", 0),
            number(one / "memory.stat", "total_inactive_file ", 0))});
}

}  // namespace foretoken
