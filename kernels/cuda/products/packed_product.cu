// The routes of packed matrices: streamed up to 16 rows, warpgroup products of codes with more, and, where those are
// not supported or take longer, the routes of the dense matrix, to which the codes are unpacked for each product.
#include "kernels/cuda/products/coded_tile.cuh"
#include "kernels/cuda/products/coded_wide.cuh"
#include "kernels/cuda/products/dense_matrix.cuh"
#include "kernels/cuda/products/packed_routes.cuh"
#include "kernels/cuda/products/product_maps.cuh"

namespace foretoken {

std::shared_ptr<const PackedRoutes> packed_routes(const CudaBackend& backend, const PackedMatrix& m) {
  return std::make_shared<const PackedRoutes>(PackedRoutes{StreamPlans(backend, StreamedMatrix::of(m)),
                                                           DenseRoutes(backend, m.out, m.in, DType::bf16),
                                                           can_tile_codes(backend, m), can_widen_codes(backend, m)});
}

bool PackedMatrix::gates(CudaProducts& products, const ProductInput& input) const {
  if (out % 16 != 0) return false;
  if (routes->plans.of(StreamInput::bf16, input.rows()) != nullptr) return true;
  const bool wide = input.rows() > kCodedRows;
  return splits_of(out, in) == 1 &&
         (wide ? routes->wide && widens_codes(products.backend(), *this, input.rows()) : routes->tiles);
}

void PackedMatrix::multiply(CudaProducts& products, const ProductResult& result, const ProductInput& input) const {
  CudaBackend& backend = products.backend();
  const auto [made, plan] = stream_ready(backend, input, routes->plans);
  if (plan != nullptr) return stream_product(products, result, made, StreamedMatrix::of(*this), *plan);
  const bool fours = out % 4 == 0 && aligned(result.y, 4 * size_of(result.y.dtype()));
  if (routes->tiles && made.rows() <= kCodedRows && (result.gated() || fours))
    return coded_tile_product(backend, result.epilogue(), made.x, *this);
  if (routes->wide && made.rows() > kCodedRows && fours && widens_codes(backend, *this, made.rows()))
    return coded_wide_product(products, result.epilogue(), made.x, *this);
  dense_product(products, result, made.x, unpacked(backend, *this), routes->dense);
}

}  // namespace foretoken
