// The routes of a packed matrix, chosen when it is prepared. This header must not know how a route multiplies.
#pragma once
#include "kernels/cuda/products/packed_matrix.cuh"
#include "kernels/cuda/products/routes.cuh"

namespace foretoken {

struct PackedRoutes {
  StreamPlans plans;
  DenseRoutes dense;  // of the matrix unpacked
  bool tiles, wide;   // coded_tile_product(), coded_wide_product() support it
};
std::shared_ptr<const PackedRoutes> packed_routes(const CudaBackend& backend, const PackedMatrix& m);

}  // namespace foretoken
