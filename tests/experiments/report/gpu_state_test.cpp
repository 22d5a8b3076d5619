// What is said of a GPU: as its driver's library says it, which is played here by one that is made for the test.
#include <cstdlib>
#include <string>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "experiments/report/machine.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

constexpr const char* kLibrary = R"(
#include <string.h>
struct nvmlDevice_st { int number; };
static struct nvmlDevice_st gpu;
static int open_;
int nvmlInit_v2(void) { ++open_; return 0; }
int nvmlShutdown(void) { --open_; return 0; }
int left_open(void) { return open_; }
int nvmlSystemGetDriverVersion(char* to, unsigned size) { strncpy(to, "580.65.06", size); return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* address, struct nvmlDevice_st** to) {
  *to = &gpu;
  return strcmp(address, "0000:01:00.0") == 0 ? 0 : 6;
}
int nvmlDeviceGetEnforcedPowerLimit(struct nvmlDevice_st* d, unsigned* to) { *to = 699500; return d != &gpu; }
int nvmlDeviceGetClockInfo(struct nvmlDevice_st* d, int kind, unsigned* to) {
  *to = kind == 1 ? 1980 : 2619;
  return d != &gpu || (kind != 1 && kind != 2);
}
int nvmlDeviceGetMaxClockInfo(struct nvmlDevice_st* d, int kind, unsigned* to) { (void)d; (void)to; return 3; }
)";

// Where there is no such GPU nothing is said and nothing fails, with the library or without.
json state(const std::string& address) {
  MachineInfo machine;
  add_gpu_state(address, machine);
  return to_json(machine);
}
json state_of_none() { return to_json(MachineInfo()); }

TEST(GpuState, OfNoGpuIsNothing) {
  for (const char* address : {"ffff:ff:1f.7", ""}) EXPECT_EQ(state(address), state_of_none());
}

TEST(GpuState, IsWhatTheLibrarySays) {
  if (void* const real = ::dlopen("libnvidia-ml.so.1", RTLD_LAZY)) {
    ::dlclose(real);
    GTEST_SKIP() << "this machine has the real one";
  }
  const TemporaryFolder folder;
  const std::string source = folder.write("nvml.c", kLibrary).string(), library = (folder.path() / "made.so").string();
  if (std::system(("cc -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o " + library + " " + source).c_str()) != 0)
    GTEST_SKIP() << "no compiler";
  void* const made = ::dlopen(library.c_str(), RTLD_NOW);  // found by its name from now on
  ASSERT_NE(made, nullptr) << ::dlerror();
  json found = state("0000:01:00.0");
  EXPECT_EQ(found["driver"], "580.65.06");
  EXPECT_EQ(found["power_limit_watts"], 699.5);
  EXPECT_EQ(found["clocks_mhz"], json({{"sm", 1980}, {"memory", 2619}})) << "what it does not say is left out";
  EXPECT_EQ(state("0000:02:00.0"), state_of_none());
  EXPECT_EQ(reinterpret_cast<int (*)()>(::dlsym(made, "left_open"))(), 0) << "it is let go of";
  ::dlclose(made);
}

}  // namespace
}  // namespace foretoken::test
