// What racecheck makes of a ring: four warps fill its two stages by cp.async, four read them, and each waits for the
// other at mbarriers, as in the attention of prompts. Where one lane arrives for its warp, behind __syncwarp(), the
// tool (2025.3.1) reports hazards between a stage's second copy and its readers; where every thread arrives, it reports
// none there. Both order the same accesses. So a hazard that it reports in a later round of such a ring shows nothing.
//
//   nvcc -arch=sm_90a -o ring tests/kernels/cuda/racecheck_ring.cu && compute-sanitizer --tool racecheck ./ring 1
//
// H200, CUDA 13: 1 two hazards, 3 none; 0 and 2, which read both rounds, and 4, a true race, have hazards.
#include <cstdint>
#include <cstdio>

#include <cuda_runtime.h>
__device__ unsigned at(const void* p) { return unsigned(__cvta_generic_to_shared(p)); }
__device__ void init(std::uint64_t* b, int n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(b)), "r"(n) : "memory");
}
__device__ void arrive(std::uint64_t* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(b)) : "memory");
}
__device__ void wait(std::uint64_t* b, int parity) {
  asm volatile(
      "{.reg .pred p;\n again%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n @!p bra again%=;}" ::"r"(
          at(b)),
      "r"(parity)
      : "memory");
}
constexpr int kStages = 2, kSteps = 4;
// kFirst: the first step that is read. kEach: every thread arrives, not lane 0. kRace: steps are overwritten unread.
template <int kFirst, bool kEach, bool kRace> __global__ void ring(const int4* from, int* to) {
  __shared__ alignas(128) int4 stage[kStages][128];
  __shared__ std::uint64_t full[kStages], empty[kStages];
  const int t = threadIdx.x % 128, lane = t % 32;
  if (threadIdx.x == 0)
    for (int i = 0; i < kStages; ++i) init(&full[i], kEach ? 128 : 4), init(&empty[i], 4);
  __syncthreads();
  if (threadIdx.x < 128) {
    for (int i = 0; i < kSteps; ++i) {
      const int s = i % kStages;
      if (i >= kStages && !kRace) wait(&empty[s], (i / kStages - 1) & 1);
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at(&stage[s][t])), "l"(from + i * 128 + t)
                   : "memory");
      asm volatile("cp.async.commit_group;\n cp.async.wait_group 0;" ::: "memory");
      if (kEach)
        arrive(&full[s]);
      else {
        asm volatile("fence.proxy.async;" ::: "memory");
        __syncwarp();
        if (lane == 0) arrive(&full[s]);
      }
    }
  } else {
    int sum = 0;
    for (int i = 0; i < kSteps; ++i) {
      const int s = i % kStages;
      wait(&full[s], i / kStages & 1);
      if (i >= kFirst) {
        const int4 v = stage[s][127 - t];
        sum += v.x + v.y;
      }
      __syncwarp();
      if (lane == 0) arrive(&empty[s]);
    }
    to[t] = sum;
  }
}
template <int a, bool b, bool c> void run(const char* name) {
  int4* from;
  int* to;
  cudaMalloc(&from, kSteps * 128 * 16);
  cudaMemset(from, 1, kSteps * 128 * 16);
  cudaMalloc(&to, 512);
  ring<a, b, c><<<1, 256>>>(from, to);
  std::printf("%s: %s\n", name, cudaGetErrorString(cudaDeviceSynchronize()));
  std::fflush(stdout);
}
int main(int, char** v) {
  switch (v[1][0]) {
    case '0':
      run<0, false, false>("all steps read, lane 0 arrives");
      break;
    case '1':
      run<2, false, false>("the second round read, lane 0 arrives");
      break;
    case '2':
      run<0, true, false>("all steps read, each arrives");
      break;
    case '3':
      run<2, true, false>("the second round read, each arrives");
      break;
    case '4':
      run<0, false, true>("a race");
      break;
  }
}
