// Free memory of the host from the system's files, without a control group and with one of either version.
#include "kernels/host_memory.h"

#include <fstream>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

class HostMemory : public testing::Test {
 protected:
  HostMemory() {
    write("proc/meminfo", "MemTotal:  4000 kB\nMemFree:  100 kB\nMemAvailable:  3000 kB\nBuffers: 1 kB\n");
  }
  void write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((folder_.path() / file).parent_path());
    std::ofstream(folder_.path() / file) << text;
  }
  std::int64_t free() { return free_host_memory(folder_.path()); }
  TemporaryFolder folder_;
};

TEST_F(HostMemory, IsWhatTheSystemCallsAvailable) {
  EXPECT_EQ(free(), 3000 << 10);
  write("sys/fs/cgroup/memory.max", "max\n");
  write("sys/fs/cgroup/memory.current", "500\n");
  EXPECT_EQ(free(), 3000 << 10);
  write("proc/meminfo", "MemTotal:  4000 kB\n");
  EXPECT_EQ(free(), 0);
}

TEST_F(HostMemory, IsLimitedByTheControlGroup) {
  write("sys/fs/cgroup/memory.max", "1000000\n");
  write("sys/fs/cgroup/memory.current", "900000\n");
  EXPECT_EQ(free(), 100000);
  write("sys/fs/cgroup/memory.stat", "anon 1\ninactive_file 20000\nactive_file 7\n");
  EXPECT_EQ(free(), 120000);
  write("sys/fs/cgroup/memory.current", "2000000\n");
  EXPECT_EQ(free(), 0);
}

TEST_F(HostMemory, IsLimitedByAControlGroupOfTheFirstVersion) {
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "600000\n");
  EXPECT_EQ(free(), 3000 << 10);
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "700000\n");
  write("sys/fs/cgroup/memory/memory.stat", "inactive_file 5\ntotal_inactive_file 3000\n");
  EXPECT_EQ(free(), 103000);
}

TEST(FreeMemory, OfTheHostBackendsIsThatOfThisMachine) {
  EXPECT_GT(make_reference_backend()->free_memory(), std::int64_t(1) << 20);
  EXPECT_GT(make_cpu_backend(1)->free_memory(), std::int64_t(1) << 20);
}

}  // namespace
}  // namespace foretoken::test
