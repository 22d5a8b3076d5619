// all_reduce: x = the sum of the ranks' x in their order, f32. Every rank writes its x to all others and adds up what
// they wrote to it, so there is one way through the wires. Bytes, with n numbers and R ranks: 4 n (R - 1) out and as
// many in; 4 n (2 R + 1) of own memory, most of it in L2. Floor between two H200 (450 GB/s a way): 1 row x 8192 0.07
// us, 64 rows x 8192 4.7 us.
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/ranks/peer_memory.cuh"

namespace foretoken {
namespace {

constexpr int kSumThreads = 512;

__device__ void tell(unsigned* flag, unsigned epoch) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(epoch) : "memory");
}
__device__ unsigned told(const unsigned* flag) {
  unsigned epoch;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(epoch) : "l"(flag) : "memory");
  return epoch;
}

// A rank may be one piece ahead. Ends where the ranks' meetings have: the sum is then nobody's.
__device__ void wait_for(const unsigned* flag, unsigned epoch, const int* failed) {
  constexpr int kLooks = 1024;  // at the flag, for each look at the host's memory
  for (int look = 1; int(told(flag) - epoch) < 0; ++look)
    if (look % kLooks == 0 && *static_cast<const volatile int*>(failed) != 0) return;
}

// Vector i of n numbers; what is behind them is 0 and is not written.
__device__ float4 load_vector(const float* x, std::int64_t i, std::int64_t n) {
  if (4 * i + 4 <= n) return __ldcg(reinterpret_cast<const float4*>(x) + i);
  float v[4] = {};
  for (int j = 0; 4 * i + j < n; ++j) v[j] = __ldcg(x + 4 * i + j);
  return {v[0], v[1], v[2], v[3]};
}
__device__ void store_vector(float* x, std::int64_t i, std::int64_t n, float4 v) {
  if (4 * i + 4 <= n) {
    reinterpret_cast<float4*>(x)[i] = v;
    return;
  }
  const float part[4] = {v.x, v.y, v.z, v.w};
  for (int j = 0; 4 * i + j < n; ++j) x[4 * i + j] = part[j];
}

__global__ void __launch_bounds__(kSumThreads)
    all_reduce_kernel(float* x, std::int64_t n, const __grid_constant__ Peers a) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const int block = int(blockIdx.x), thread = int(threadIdx.x);
  PeerMemory& own = *a.memory[a.rank];
  const std::int64_t vectors = (n + 3) / 4, share = (vectors + kPeerBlocks - 1) / kPeerBlocks,
                     end = min(vectors, (block + 1) * share);
  unsigned epoch = __ldcg(&own.epochs[block]);
  for (std::int64_t first = block * share; first < end; first += kPeerPiece) {
    const int count = int(min(std::int64_t(kPeerPiece), end - first));
    ++epoch;
    for (int i = thread; i < count; i += kSumThreads) {
      const float4 v = load_vector(x, first + i, n);
      for (int step = 1; step < a.ranks; ++step)
        a.memory[(a.rank + step) % a.ranks]->pieces[epoch % 2][a.rank][block][i] = v;
    }
    __threadfence_system();
    __syncthreads();
    if (thread < a.ranks && thread != a.rank) {
      tell(&a.memory[thread]->flags[a.rank][block], epoch);
      wait_for(&own.flags[thread][block], epoch, a.failed);
    }
    __syncthreads();
    for (int i = thread; i < count; i += kSumThreads) {
      float4 sum = {};
      for (int r = 0; r < a.ranks; ++r) {
        const float4 v = r == a.rank ? load_vector(x, first + i, n) : __ldcg(&own.pieces[epoch % 2][r][block][i]);
        sum = r == 0 ? v : float4{sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w};
      }
      store_vector(x, first + i, n, sum);
    }
  }
  __syncthreads();
  if (thread == 0) own.epochs[block] = epoch;
}

}  // namespace

void CudaBackend::join(const Rank& rank) {
  enter();
  synchronize();
  cudaFuncAttributes loaded = {};  // loading a kernel may wait for those that run, which would wait for it
  check(cudaFuncGetAttributes(&loaded, all_reduce_kernel), "loading the kernel of sums over ranks");
  std::unique_ptr<CudaPeers>& peers = peers_[rank.group.get()];
  if (!peers) peers = std::make_unique<CudaPeers>(options_.device, rank);
  peers->meet();
}

void CudaBackend::all_reduce(Tensor x, const Rank& rank) {
  enter();
  if (x.dtype() != DType::f32 || !x.dense() || x.device().kind != Device::Kind::cuda)
    throw Error("cuda: all_reduce: the numbers must be f32, dense and on the GPU");
  const auto joined = peers_.find(rank.group.get());
  if (joined == peers_.end()) throw Error("cuda: all_reduce of ranks that have not joined; call Backend::join first");
  launch_kernel("all_reduce", stream_, {dim3(kPeerBlocks), kSumThreads, 0, 1, dependent_launch()}, all_reduce_kernel,
                x.data<float>(), x.elements(), joined->second->peers());
}

}  // namespace foretoken
