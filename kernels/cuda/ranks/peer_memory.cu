// CudaPeers: memory of ranks on several GPUs. Bytes moved: none.
#include <cstddef>
#include <vector>

#include "kernels/cuda/ranks/peer_memory.cuh"

namespace foretoken {
namespace {

std::shared_ptr<int> pinned_flag() {
  void* flag = nullptr;
  check(cudaHostAlloc(&flag, sizeof(int), cudaHostAllocMapped | cudaHostAllocPortable), "allocating a flag of ranks");
  *static_cast<int*>(flag) = 0;
  return {static_cast<int*>(flag), [](int* p) { (void)cudaFreeHost(p); }};
}

}  // namespace

CudaPeers::CudaPeers(int device, const Rank& rank) : rank_(rank), device_(device), failed_(pinned_flag()) {
  if (rank.size() > kMostPeers)
    throw Error("cuda: at most " + std::to_string(kMostPeers) + " GPUs can add up; lower \"tensor\" of \"parallel\"");
  void* memory = nullptr;
  check(cudaMalloc(&memory, sizeof(PeerMemory)), "allocating memory for the other ranks");
  own_ = static_cast<PeerMemory*>(memory);
  // A kernel that waits for a rank that has ended ends too.
  rank.group->when_failed([failed = failed_] { *static_cast<volatile int*>(failed.get()) = 1; });
}

CudaPeers::~CudaPeers() { (void)cudaFree(own_); }

void CudaPeers::expect_access(int other) const {
  if (other == device_) return;
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, device_, other), "asking whether GPUs can write to each other's memory");
  if (can == 0)
    throw Error("cuda: GPU " + std::to_string(device_) + " cannot write to the memory of GPU " + std::to_string(other) +
                "; choose GPUs that are connected (CUDA_VISIBLE_DEVICES), or leave out \"parallel\"");
  const cudaError_t status = cudaDeviceEnablePeerAccess(other, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled)
    (void)cudaGetLastError();  // clears it
  else
    check(status, "letting a GPU write to another's memory");
}

void CudaPeers::meet() {
  struct Own {
    int device;
    PeerMemory* memory;
  } own{device_, own_};
  peers_ = {.failed = failed_.get(), .rank = rank_.number, .ranks = rank_.size()};
  *failed_ = 0;
  check(cudaMemset(own_, 0, offsetof(PeerMemory, pieces)), "clearing the flags of ranks");
  check(cudaDeviceSynchronize(), "clearing the flags of ranks");
  std::vector<int> devices(static_cast<std::size_t>(rank_.size()));
  rank_.group->meet(rank_.number, {"GPU memory", 1, &own}, [&](std::span<void* const> memory) {
    for (std::size_t r = 0; r < memory.size(); ++r) {
      const Own& of = *static_cast<const Own*>(memory[r]);
      devices[r] = of.device, peers_.memory[r] = of.memory;
    }
  });
  for (const int other : devices) expect_access(other);
  double done[] = {0};
  rank_.agree(done);  // nobody writes before everybody may
}

}  // namespace foretoken
