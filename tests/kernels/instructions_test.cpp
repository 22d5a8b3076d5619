// Which instructions of this machine the cpu backend has.
#include <algorithm>
#include <fstream>
#include <iterator>

#if defined(__x86_64__) && defined(__linux__)
#include <cerrno>
#include <cstddef>
#include <cstdlib>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

// Whether the system lets this process have tiles of integers.
bool tiles_are_granted() {
#if defined(__x86_64__) && defined(__linux__)
  return syscall(SYS_arch_prctl, 0x1023L, 18L) == 0;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
#else
  return false;
#endif
}

// As the system lists them.
TEST(Instructions, are_those_of_the_processor_best_first) {
  std::ifstream file("/proc/cpuinfo");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t at = text.find("\nflags");
  if (at == text.npos) GTEST_SKIP() << "no list of the processor's instructions";
  const std::string flags = text.substr(at, text.find('\n', at + 1) - at) + " ";
  const auto has = [&](std::initializer_list<const char*> names) {
    return std::ranges::all_of(names, [&](const std::string& n) { return flags.find(" " + n + " ") != flags.npos; });
  };
  const std::vector<std::string> found = cpu_instructions();
  std::vector<std::string> expected;
  const bool avx2 = has({"avx2", "fma"}), avx512 = avx2 && has({"avx512f", "avx512bw", "avx512vl", "avx512dq"}),
             vnni = avx512 && has({"avx512_vnni"}), dots = vnni && has({"avx512_bf16"});
  if (dots && has({"amx_int8"}) && tiles_are_granted()) expected.push_back("amx");
  if (dots) expected.push_back("avx512bf16");
  if (vnni) expected.push_back("avx512vnni");
  if (avx512) expected.push_back("avx512");
  if (avx2) expected.push_back("avx2");
  expected.push_back("scalar");
  EXPECT_EQ(found, expected);
}

TEST(Instructions, unknown_ones_are_refused_by_name) {
  EXPECT_TRUE(test::says(test::sentence_of([] { make_cpu_backend(1, "mmx"); }), "mmx", "scalar"));
}

#if defined(__x86_64__) && defined(__linux__)
// From now on the system refuses what this process asks for by arch_prctl, as one does that keeps no room for tiles.
bool refuse_tiles() {
  sock_filter program[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 1),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter{std::size(program), program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

constexpr int kNoFilter = 77;

// 0: what is left has no tiles, and computes.
[[noreturn]] void without_tiles() {
  if (!refuse_tiles()) std::_Exit(kNoFilter);
  if (tiles_are_granted()) std::_Exit(2);
  const std::vector<std::string> found = cpu_instructions();
  const bool tiles = std::ranges::find(found, "amx") != found.end();
  std::_Exit(tiles || make_cpu_backend(1)->description().find("amx") != std::string::npos ? 1 : 0);
}

TEST(Instructions, tiles_that_the_system_refuses_are_not_used) {
  const std::vector<std::string> all = cpu_instructions();
  bool filters = true;
  const auto ended = [&](int status) {
    filters = !WIFEXITED(status) || WEXITSTATUS(status) != kNoFilter;
    return !filters || ::testing::ExitedWithCode(0)(status);
  };
  EXPECT_EXIT(without_tiles(), ended, "");
  EXPECT_EQ(cpu_instructions(), all);  // another process was refused
  if (!filters) GTEST_SKIP() << "this process may not be given a filter of system calls";
  if (std::ranges::find(all, "amx") == all.end()) GTEST_SKIP() << "nothing to refuse: there are no tiles";
}
#endif

}  // namespace
}  // namespace foretoken::test
