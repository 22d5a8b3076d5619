// How much memory the host could still hand out. This module must not know what it is for.
#pragma once
#include <cstdint>
#include <filesystem>

namespace foretoken {

// Bytes: what the system calls available (free, or held by caches that it would give up), and no more than the control
// group of this process may still take. 0 where the system does not say. `root` is the root of its files, for tests.
std::int64_t free_host_memory(const std::filesystem::path& root = "/");

}  // namespace foretoken
