// Memory of each rank's GPU that the other ranks' GPUs write, through NVLink or PCIe. The ranks are threads of one
// process, so addresses are the same for all of them. This header must not know what is written.
#pragma once
#include <memory>

#include "kernels/cuda/device.cuh"
#include "kernels/rank.h"

namespace foretoken {

constexpr int kMostPeers = 8;
// Blocks of a kernel that ranks run together, and what each of them writes at once to another rank: 16-byte vectors.
constexpr int kPeerBlocks = 32, kPeerPiece = 4096;

// One rank's. A block has pieces and flags of its own, so that blocks of one kernel need not wait for each other.
struct PeerMemory {
  unsigned epochs[kPeerBlocks];                           // pieces that the block of this rank has had
  unsigned flags[kMostPeers][kPeerBlocks];                // by the rank that writes: the last piece that is there
  float4 pieces[2][kMostPeers][kPeerBlocks][kPeerPiece];  // of even and of odd pieces, by the rank that writes
};

// What a kernel is given.
struct Peers {
  PeerMemory* memory[kMostPeers] = {};  // by rank
  const int* failed = nullptr;          // on the host: the ranks' meetings have ended, so nobody may be waited for
  int rank = 0, ranks = 0;
};

class CudaPeers {
 public:
  // Allocates this rank's. `device` is current.
  CudaPeers(int device, const Rank& rank);
  ~CudaPeers();
  CudaPeers(const CudaPeers&) = delete;

  // All ranks call it, with nothing queued: exchanges addresses, and begins anew. Throws Error where a GPU cannot write
  // to another's memory.
  void meet();
  const Peers& peers() const { return peers_; }

 private:
  void expect_access(int other) const;

  Rank rank_;
  int device_;
  PeerMemory* own_ = nullptr;
  std::shared_ptr<int> failed_;  // pinned
  Peers peers_;
};

}  // namespace foretoken
