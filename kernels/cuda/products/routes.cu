#include "kernels/cuda/products/routes.cuh"
#include "kernels/cuda/products/tile_product.cuh"
#include "kernels/cuda/products/wide_product.cuh"

namespace foretoken {

StreamPlans::StreamPlans(const CudaBackend& backend, const StreamedMatrix& matrix) {
  norm_ = stream_plan(backend, matrix, StreamInput::norm, 1), f32_ = stream_plan(backend, matrix, StreamInput::f32, 1);
  for (std::size_t i = 0; i < bf16_.size(); ++i)
    bf16_[i] = stream_plan(backend, matrix, StreamInput::bf16, std::int64_t(i) + 1);
}

const StreamPlan* StreamPlans::of(StreamInput kind, std::int64_t rows) const {
  const auto known = [](const std::optional<StreamPlan>& plan) { return plan ? &*plan : nullptr; };
  if (kind == StreamInput::bf16)
    return rows >= 1 && rows <= std::int64_t(bf16_.size()) ? known(bf16_[std::size_t(rows - 1)]) : nullptr;
  return rows == 1 ? known(kind == StreamInput::norm ? norm_ : f32_) : nullptr;
}

DenseRoutes::DenseRoutes(const CudaBackend& backend, std::int64_t out, std::int64_t in, DType type)
    : backend_(&backend), out_(out), in_(in), type_(type) {
  if (type == DType::bf16) plans_ = StreamPlans(backend, {.out = out, .in = in});
  for (const bool aligned : {false, true})
    for (int rows = 0; rows <= kFew; ++rows) few_[aligned][std::size_t(rows)] = choose(rows, aligned);
}

// Where this route was measured to be the fastest: 9 rows and more, for a head (a very tall matrix) 2 rows and more. Up
// to 64 rows where all tiles run at once, or where the library would write each slice to memory; else up to 32 where
// one side of the matrix is short, and up to 16 where none is.
bool DenseRoutes::tiles(std::int64_t rows) const {
  constexpr std::int64_t kHead = 1 << 16, kShort = 2048, kShortRows = 32;
  const std::int64_t fewest = out_ >= kHead ? 2 : 9;
  const bool many = tiles_at_once(*backend_, out_, in_) || (backend_->invariant() && splits_of(out_, in_) > 1);
  const std::int64_t most = many ? kTileRows : std::min(out_, in_) <= kShort ? kShortRows : CudaProducts::kStreamRows;
  return type_ == DType::bf16 && rows >= fewest && rows <= most && can_tile(*backend_, out_, in_);
}

Route DenseRoutes::of(std::int64_t rows, bool aligned) const {
  return rows <= kFew ? few_[aligned][std::size_t(rows)] : choose(rows, aligned);
}

std::optional<Route> DenseRoutes::gated(std::int64_t rows) const {
  if (out_ % 16 != 0 || rows == 0) return {};
  if (tiles(rows) && splits_of(out_, in_) == 1) return Route::tile;
  return plans_.of(StreamInput::bf16, rows) != nullptr ? std::optional(Route::streamed) : std::nullopt;
}

Route DenseRoutes::choose(std::int64_t rows, bool aligned) const {
  const bool fours = aligned && out_ % 4 == 0;
  if (fours && tiles(rows)) return Route::tile;
  if (plans_.of(StreamInput::bf16, rows) != nullptr) return Route::streamed;
  if (!backend_->invariant()) return Route::library;
  if (fours && type_ == DType::bf16 && can_widen(*backend_, rows, out_, in_)) return Route::wide;
  const bool awkward = in_ % 8 != 0 || out_ % 4 != 0;  // cuBLASLt has no order of sums of its own for these
  // Slabs by the kernel of few rows: exact_product adds in another order.
  if (awkward && rows > 0 && plans_.of(StreamInput::bf16, CudaProducts::kStreamRows) != nullptr) return Route::slabs;
  return type_ == DType::f32 || awkward ? Route::exact : Route::library;
}

}  // namespace foretoken
