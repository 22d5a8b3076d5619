// How much memory the host can still allocate. This module must not know what it is for.
#pragma once
#include <cstdint>
#include <filesystem>

namespace foretoken {

// Bytes that the system reports as available (free, or held by caches that it can free), at most what the control group
// of this process may still use. 0 where the system does not report it. `root`: the root of the files that are read,
// for tests.
std::int64_t free_host_memory(const std::filesystem::path& root = "/");

}  // namespace foretoken
