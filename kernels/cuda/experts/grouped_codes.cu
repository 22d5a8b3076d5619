// Grouped products of packed matrices: bytes: bits / 8 for each weight of a touched expert and its scales, once for 64
// pairs.
#include "kernels/cuda/experts/grouped_kernel.cuh"

namespace foretoken {

void launch_grouped_codes(cudaStream_t stream, const Grid& grid, int sets, const Grouped& a) {
  with_unpack(a.layout, [&]<class U>(U) {
    launch_kernel("a grouped product", stream, grid, grouped_kernel_of<CodedSource<U>>(sets), a);
  });
}

}  // namespace foretoken
