// The devices that a run may name. This module must not know what runs on them.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "kernels/backend.h"

namespace foretoken {

using MakeBackend = std::function<std::unique_ptr<Backend>()>;
// The device "auto": the GPU where there are `gpus`, else the CPU. A GPU that cannot be used is told once, with the
// reason.
std::unique_ptr<Backend> automatic_backend(const std::function<int()>& gpus, const MakeBackend& gpu,
                                           const MakeBackend& cpu);
// Of the key "device" of a run's engine; `number`: of the GPU. "cuda" where this program has no CUDA backend is an
// Error; "auto" takes cpu then.
std::unique_ptr<Backend> make_backend(const std::string& device, int number, int threads, bool invariant);
// Throws Error where there are not so many devices of its kind.
// From the first use of a GPU on: loading a kernel may wait for those that run, which may wait for another rank's.
void load_all_kernels();
void expect_devices(const Backend& device, int wanted);

}  // namespace foretoken
