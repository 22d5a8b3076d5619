// Lets one function be compiled for host and device with the same bits: the qualifiers, and float operations that no
// compiler contracts into a fused multiply-add. Host code is compiled with -ffp-contract=off.
#pragma once

#if defined(__CUDACC__)
#define FORETOKEN_HD __host__ __device__
#else
#define FORETOKEN_HD
#endif

namespace foretoken {

#if defined(__CUDA_ARCH__)
FORETOKEN_HD inline float mul(float a, float b) { return __fmul_rn(a, b); }
FORETOKEN_HD inline float add(float a, float b) { return __fadd_rn(a, b); }
FORETOKEN_HD inline double mul(double a, double b) { return __dmul_rn(a, b); }
FORETOKEN_HD inline double add(double a, double b) { return __dadd_rn(a, b); }
#else
FORETOKEN_HD inline float mul(float a, float b) { return a * b; }
FORETOKEN_HD inline float add(float a, float b) { return a + b; }
FORETOKEN_HD inline double mul(double a, double b) { return a * b; }
FORETOKEN_HD inline double add(double a, double b) { return a + b; }
#endif

// Prefetches an address that is read soon: into L2 on a device, nothing on the host.
FORETOKEN_HD inline void read_soon(const void* address) {
#if defined(__CUDA_ARCH__)
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#else
  (void)address;
#endif
}

}  // namespace foretoken
