#include "experiments/session/devices.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>

#include "framework/text/known_names.h"
#include "kernels/error.h"
#ifdef FORETOKEN_CUDA
#include "kernels/cuda/cuda_backend.h"
#endif

namespace foretoken {
namespace {

std::unique_ptr<Backend> cuda([[maybe_unused]] int number, [[maybe_unused]] bool invariant) {
#ifdef FORETOKEN_CUDA
  return make_cuda_backend({.device = number, .invariant = invariant});
#else
  throw Error(
      "device cuda: this program was built without CUDA; build it with ./foretoken --preset cuda build, or use "
      "\"device\": \"cpu\"");
#endif
}

int gpus() {
#ifdef FORETOKEN_CUDA
  return cuda_devices();
#else
  return 0;
#endif
}

}  // namespace

std::unique_ptr<Backend> automatic_backend(const std::function<int()>& gpus, const MakeBackend& gpu,
                                           const MakeBackend& cpu) {
  static std::mutex one;  // ranks make theirs at once
  static std::set<std::string> told;
  try {
    if (gpus() > 0) return gpu();
  } catch (const Error& e) {
    const std::lock_guard lock(one);
    if (told.insert(e.what()).second)
      std::fprintf(stderr, "foretoken: \"device\": \"auto\" takes the CPU, since the GPU cannot be used: %s\n",
                   e.what());
  }
  return cpu();
}

std::unique_ptr<Backend> make_backend(const std::string& device, int number, int threads, bool invariant) {
  if (device == "reference") return make_reference_backend();
  if (device == "cuda") return cuda(number, invariant);
  if (device == "cpu") return make_cpu_backend(threads);
  if (device != "auto") unknown_name("device", device, {"auto", "cpu", "reference", "cuda"});
  return automatic_backend(gpus, [&] { return cuda(number, invariant); }, [&] { return make_cpu_backend(threads); });
}

void load_all_kernels() { ::setenv("CUDA_MODULE_LOADING", "EAGER", 0); }

void expect_devices(const Backend& device, int wanted) {
  if (device.name() != "cuda") return;
  if (const int there = gpus(); there < wanted)
    throw Error("'/parallel/tensor' is " + std::to_string(wanted) + ", but this machine has " + std::to_string(there) +
                (there == 1 ? " GPU" : " GPUs") + "; lower it, or set '/engine/device' to \"cpu\"");
}

}  // namespace foretoken
