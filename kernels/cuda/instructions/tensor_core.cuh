// Instructions for products of small bf16 tiles: asynchronous copies to shared memory, loads of matrices from there to
// registers, and their product. This header must not know what the tiles are.
#pragma once
#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace foretoken {

__device__ inline unsigned shared_address(const void* p) { return unsigned(__cvta_generic_to_shared(p)); }

// L2 policies: data that is read once is evicted first, data that is read often last.
__device__ inline std::uint64_t read_once() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ inline std::uint64_t read_sometimes() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ inline std::uint64_t read_often() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Whether the phase of this parity is complete, as any lane of the warp sees it.
__device__ inline bool barrier_passed(unsigned barrier, int parity) {
  unsigned done;
  asm volatile(
      "{\n.reg .pred done;\nmbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\nselp.u32 %0, 1, 0, done;\n}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return __any_sync(0xffffffffu, done != 0);
}

// Bulk copies to two buffers in shared memory, one copy at a time in each. Every thread of the block constructs one
// with the same barriers (kBarrierBytes of shared memory), and a __syncthreads follows. Addresses, strides and sizes
// are multiples of 16 bytes.
class Bulk {
 public:
  static constexpr int kBarrierBytes = 16;
  __device__ explicit Bulk(void* barriers) : barriers_(shared_address(barriers)) {
    if (threadIdx.x == 0) {
      for (unsigned i = 0; i < 2; ++i)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers_ + 8 * i) : "memory");
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
  }
  // Copies at most 32 rows to buffer 0 or 1; each of the first `rows` threads copies the row that row_of() returned.
  // Called by all threads; from architecture 90 on only the first warp has an effect.
  __device__ void copy(int buffer, int rows, int row, void* to, int pitch, const void* from, std::int64_t stride,
                       int bytes) {
    const int lane = int(threadIdx.x);
    if (lane >= 32) return;
    const unsigned barrier = barriers_ + 8u * unsigned(buffer);
    if (lane == 0)
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(rows * bytes)
                   : "memory");
    __syncwarp();
    if (lane < rows)
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                       shared_address(to) + unsigned(row * pitch)),
                   "l"(static_cast<const char*>(from) + row * stride), "r"(bytes), "r"(barrier)
                   : "memory");
  }
  static __device__ int row_of(int rows) {
    return int(threadIdx.x + blockIdx.x) % rows;
  }  // blocks begin at different rows
  __device__ bool arrived(int buffer, int round) const {
    return barrier_passed(barriers_ + 8u * unsigned(buffer), round & 1);
  }
  // Waits for the copy to `buffer`; `round`: how many copies to it came before. Called by all threads.
  __device__ void wait(int buffer, int round) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::
            "r"(barriers_ + 8u * unsigned(buffer)),
        "r"(round & 1)
        : "memory");
  }

 private:
  unsigned barriers_;
};

#else

class Bulk {
 public:
  static constexpr int kBarrierBytes = 16;
  __device__ explicit Bulk(void*) {}
  static __device__ int row_of(int) { return 0; }
  __device__ void copy(int, int rows, int, void* to, int pitch, const void* from, std::int64_t stride, int bytes) {
    const int pieces = bytes / 16;
    for (int n = int(threadIdx.x); n < rows * pieces; n += int(blockDim.x)) {
      const int r = n / pieces, i = n % pieces * 16;
      *reinterpret_cast<uint4*>(static_cast<char*>(to) + r * pitch + i) =
          __ldcg(reinterpret_cast<const uint4*>(static_cast<const char*>(from) + r * stride + i));
    }
  }
  __device__ bool arrived(int, int) const { return true; }
  __device__ void wait(int, int) { __syncthreads(); }
};

#endif

// Four 8 x 8 matrices of bf16; lane l passes the address of row l % 8 of matrix l / 8.
__device__ inline void load_matrices(unsigned (&r)[4], unsigned at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}

// c [16, 8] += a [16, 16] b [8, 16]^T, sums in f32.
__device__ inline void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Adds 1 with acquire-release order after this warp's writes; the reader of the last count sees all writes before the
// other counts.
__device__ inline int count_behind(int* counter) {
  int before;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before;
}

}  // namespace foretoken
