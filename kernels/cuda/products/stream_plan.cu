// The launch plan of a streamed product: warps, rings, pieces. Measured on an H200 with ten shapes, 1 to 16 rows, and
// all plans that fit.
#include <algorithm>
#include <span>

#include "kernels/cuda/instructions/tensor_maps.cuh"
#include "kernels/cuda/products/stream_dense.cuh"
#include "kernels/cuda/products/stream_kernel.cuh"
#include "kernels/cuda/products/stream_product.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {
namespace {

constexpr StreamPieces of_boxes(int ring, int piece) { return {ring, piece, piece_bytes(piece)}; }
constexpr StreamPieces kDensePieces[] = {of_boxes(3, 256), of_boxes(2, 256), of_boxes(6, 128), of_boxes(5, 128),
                                         of_boxes(4, 128), of_boxes(3, 128), of_boxes(4, 64),  of_boxes(3, 64)};

// Estimated time, in tiles that one multiprocessor reads in sequence.
double cost_of(const StreamPlan& plan, std::int64_t tiles, std::int64_t groups, std::int64_t rows) {
  const std::int64_t at_once = plan.warps / plan.local, rounds = (tiles + groups * at_once - 1) / (groups * at_once);
  const double full = double(tiles) / double(groups * at_once), empty = double(rounds) - full;
  // Warps without a tile in the last round leave bandwidth to the others, unless the others are too few to use it.
  const double work = double(at_once) * (full + (plan.slices == 1 ? 0.1 : 1) * empty);
  // `under_way`: KB in flight on a multiprocessor.
  const double under_way = double(plan.warps * (plan.pieces.ring - 1) * plan.pieces.bytes) / 1024;
  const double reading = plan.pieces.piece == 64    ? 1.16
                         : plan.pieces.piece == 256 ? 0.9
                                                    : 1;  // of an H200: boxes, runs of 512 bytes, boxes
  return work * reading * (1 + 0.001 * std::max(0.0, 120 - under_way)) *
         (1 + (rows <= 8 && !plan.pieces.lanes ? 0.0015 : 0.01) * (kMostWarps - plan.warps));
}

bool can_stream(const CudaBackend& backend, const StreamedMatrix& matrix, StreamInput kind, std::int64_t rows) {
  const std::int64_t slices = splits_of(matrix.out, matrix.in), tiles = (matrix.out + 15) / 16;
  if (rows < 1 || rows > CudaProducts::kStreamRows || matrix.in % (slices * 128) != 0) return false;
  if (rows > 1 && kind != StreamInput::bf16) return false;
  if (kind == StreamInput::norm && matrix.in > StreamRows::kMostNormed) return false;
  if (matrix.packed == nullptr && backend.dependent_launch() && map_encoder() == nullptr) return false;
  return tiles <= kMostTiles && (slices == 1 || slices * tiles * 16 * 16 <= kMostPartials);
}

}  // namespace

StreamInput stream_input(const ProductInput& input) {
  if (input.kind == ProductInput::Kind::norm) return StreamInput::norm;
  return input.x.dtype() == DType::f32 ? StreamInput::f32 : StreamInput::bf16;
}

std::int64_t stream_bytes(const StreamPlan& plan, StreamInput kind, std::int64_t rows, std::int64_t in) {
  static_assert(kBoxAlignment == 1024 && ring_barriers(6) == 48 && ring_barriers(8) == 64);
  const std::int64_t slice = in / plan.slices, columns = slice * plan.local;
  return streamed_bytes(
      plan.warps, plan.pieces.ring, plan.pieces.bytes, plan.local > 1, rows,
      streamed_x_bytes(kind == StreamInput::norm, rows, in, columns, plan.depth < slice ? plan.depth : columns));
}

std::optional<StreamPlan> stream_plan(const CudaBackend& backend, const StreamedMatrix& matrix, StreamInput kind,
                                      std::int64_t rows) {
  if (!can_stream(backend, matrix, kind, rows)) return {};
  constexpr std::int64_t kMostRows = 36 << 10;  // bytes of x in a block that sums all slices, at most
  const std::int64_t out = matrix.out, in = matrix.in, tiles = (out + 15) / 16;
  StreamPlan plan, best{.blocks = 0};  // nothing fits
  plan.slices = splits_of(out, in);
  plan.local = rows * in * 2 <= kMostRows ? plan.slices : 1;
  const std::int64_t groups = std::max(1, backend.multiprocessors() * plan.local / plan.slices);
  const std::int64_t slice = in / plan.slices;
  const auto coded = matrix.packed != nullptr ? coded_pieces(*matrix.packed) : std::array<StreamPieces, 2>{};
  const std::span<const StreamPieces> all =
      matrix.packed != nullptr ? std::span<const StreamPieces>(coded) : kDensePieces;
  double least = 1e30;
  for (plan.warps = kMostWarps / plan.local * plan.local; plan.warps >= std::max(4, plan.local);
       plan.warps -= plan.local)
    for (const StreamPieces& pieces : all)
      for (const std::int64_t depth : {slice, std::int64_t(512), std::int64_t(256)}) {
        const auto& [ring, piece, bytes, lanes] = pieces;
        plan.pieces = pieces, plan.depth = int(depth);
        if (slice % piece != 0 || (matrix.packed == nullptr && slice < piece * (piece == 256 ? ring : ring - 1)))
          continue;  // else some stages of short slices are never filled
        // Measured with 4 bits, of rings that lanes fill: few warps take the deeper one; where a block has all slices
        // of a tile, twelve warps are faster than eight on more multiprocessors, and than sixteen.
        constexpr int kFewWarps = 8, kLocalWarps = 12;
        if (lanes && ring != (plan.warps <= kFewWarps ? all.front().ring : all.back().ring)) continue;
        if (kind == StreamInput::norm && plan.warps * 32 < kNormThreads) continue;
        if (depth < slice ? kind != StreamInput::bf16 || plan.local > 1 || slice % depth != 0 : depth > slice) continue;
        if (stream_bytes(plan, kind, rows, in) + kStreamStaticBytes > backend.shared_memory()) continue;
        const std::int64_t at_once = plan.warps / plan.local;
        const bool other = lanes && plan.local > 1 && plan.warps != kLocalWarps / plan.local * plan.local;
        // Other numbers of warps are for memories that twelve do not fit.
        const double cost = cost_of(plan, tiles, groups, rows) * (other ? 1e6 : 1);
        if (cost < least)
          least = cost, best = plan,
          best.blocks = int(std::min(groups, (tiles + at_once - 1) / at_once)) * (plan.slices / plan.local);
      }
  if (best.blocks == 0) return {};
  return best;
}

}  // namespace foretoken
