// y = x W^T + b for at most 16 rows. W bf16 [out, in], sums in f32.
// Bytes: the matrix, out * in * 2, once; x comes from L2, once per block.
// A warp takes 16 outputs (a tile) and one slice of the inputs. It copies 16 x 128 (or 64) pieces of W into a ring of its own, several
// ahead, and multiplies them by the rows of x in shared memory: mma.m16n8k16, k ascending in one chain, so a result does not
// depend on how many rows there are (and has the same bits as cuBLASLt without split-K, measured on an H200). The slices of a tile
// are added in order, in shared memory where one block has them all, else by whoever comes last.
// The rings fill before the kernel waits for the one before it: weights are there when x is.
#include "kernels/cuda/stream_product.cuh"

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/stream_input.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace foretoken {
namespace {

// ---- the matrix ----

// The pieces of a warp's tiles, in order: kPiece inputs of 16 outputs, then the next, then the next tile.
template <int kRing, int kPiece> class Ring {
 public:
  __device__ Ring(const Stream& a, unsigned char* memory, void* barriers, int tile, int stride, int k0, int count)
      : a_(a), copies_(barriers), memory_(shared_address(memory)), row_(int(threadIdx.x) % 16), stride_(stride), k0_(k0), tile_(tile), left_(count) {
    aim();
  }

  // Asks for the next piece, if there is one; all lanes are done with the piece that it replaces.
  __device__ void ask() {
    if (left_ <= 0) return copies_.skip();
    copies_.ask(asked_, memory_ + unsigned(asked_ * piece_bytes(kPiece) + row_ * pitch_bytes(kPiece)), from_, 2 * kPiece);
    if (++asked_ == kRing) asked_ = 0;
    --left_, from_ += kPiece, k_ += kPiece;
    if (k_ == a_.slice) k_ = 0, tile_ += stride_, aim();
  }
  // Waits for the oldest piece; its address.
  __device__ unsigned take() {
    copies_.wait(taken_, round_);
    const unsigned at = memory_ + unsigned(taken_ * piece_bytes(kPiece));
    if (++taken_ == kRing) taken_ = 0, ++round_;
    return at;
  }

 private:
  // Rows of a tile: 16 neighbours, or 8 of the gate and the same 8 of what it gates.
  __device__ void aim() {
    const int row = a_.gated ? tile_ * 8 + row_ % 8 + row_ / 8 * (a_.out / 2) : tile_ * 16 + row_;
    from_ = a_.w + std::int64_t(min(row, a_.out - 1)) * a_.in + k0_;
  }

  const Stream& a_;
  Copies<kRing> copies_;
  unsigned memory_;
  int row_, stride_, k0_, tile_, left_, k_ = 0, asked_ = 0, taken_ = 0, round_ = 0;
  const Bf16* from_ = nullptr;
};

// One piece of the ring times the rows of x.
template <int NT, int kPiece> __device__ void multiply_piece(float (&sum)[NT][4], unsigned piece, const unsigned (&x)[NT], int k, int lane) {
  constexpr int kSteps = kPiece / 16;
  const unsigned at = piece + unsigned(lane % 16 * pitch_bytes(kPiece) + lane / 16 * 16);
  unsigned w[kSteps][4], b[NT][kSteps / 2][4];
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    load_matrices(w[s], at + unsigned(32 * s));
    if (s % 2 == 0)
#pragma unroll
      for (int n = 0; n < NT; ++n) load_matrices(b[n][s / 2], x[n] + unsigned((k + s * 16) * 2));
  }
#pragma unroll
  for (int s = 0; s < kSteps; ++s)
#pragma unroll
    for (int n = 0; n < NT; ++n) multiply_add(sum[n], w[s], b[n][s / 2][s % 2 * 2], b[n][s / 2][s % 2 * 2 + 1]);
}

// Where this lane's row of x begins for ldmatrix; rows that are not there repeat row 0, and their results are not written.
template <int NT> __device__ void row_addresses(unsigned (&x)[NT], const Bf16* xs, int rows, int pitch, int lane) {
#pragma unroll
  for (int n = 0; n < NT; ++n) {
    const int r = n * 8 + lane % 8;
    x[n] = shared_address(xs + (r < rows ? r : 0) * pitch + lane / 8 * 8);
  }
}

// ---- the results ----

// Adds the slices of a tile in order, in the warp that comes last; false in the others.
template <int NT> __device__ bool add_slices(const Stream& a, float (&sum)[NT][4], int slice, int tile, int lane) {
  float4* const partials = reinterpret_cast<float4*>(a.partials);
  const auto at = [&](int s, int n) { return ((std::int64_t(s) * a.tiles + tile) * NT + n) * 32 + lane; };
#pragma unroll
  for (int n = 0; n < NT; ++n) __stcg(partials + at(slice, n), make_float4(sum[n][0], sum[n][1], sum[n][2], sum[n][3]));
  __syncwarp();
  int before = 0;
  if (lane == 0) before = count_behind(a.counters + tile);
  if (__shfl_sync(0xffffffffu, before, 0) != a.slices - 1) return false;
#pragma unroll
  for (int n = 0; n < NT; ++n) {
    float4 v = __ldcg(partials + at(0, n));
#pragma unroll 4
    for (int s = 1; s < a.slices; ++s) {
      const float4 p = __ldcg(partials + at(s, n));
      v.x += p.x, v.y += p.y, v.z += p.z, v.w += p.w;
    }
    sum[n][0] = v.x, sum[n][1] = v.y, sum[n][2] = v.z, sum[n][3] = v.w;
  }
  if (lane == 0) a.counters[tile] = 0;
  return true;
}

template <int NT> __device__ void write_tile(const Stream& a, const float (&sum)[NT][4], int tile, int lane) {
#pragma unroll
  for (int n = 0; n < NT; ++n)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int r = n * 8 + lane % 4 * 2 + j % 2, o = tile * 16 + lane / 4 + j / 2 * 8;
      if (r >= a.rows || o >= a.out) continue;
      const std::int64_t at = r * a.y_stride + o;
      const float v = a.bias != nullptr ? sum[n][j] + a.bias[o] : sum[n][j];
      if (a.y == nullptr) from_float(a.y_bf16[at], v);
      else a.y[at] = a.adds ? a.y[at] + v : v;
    }
}

__device__ inline float as_bf16(float v) { return to_float(__float2bfloat16_rn(v)); }

// A lane has the gates of its rows in its first two sums and what they gate in the others, each rounded as a product's result is.
template <int NT> __device__ void write_gated(const Stream& a, const float (&sum)[NT][4], int tile, int lane) {
  const int o = tile * 8 + lane / 4;
  const float gate_bias = a.bias != nullptr ? a.bias[o] : 0, up_bias = a.bias != nullptr ? a.bias[o + a.out / 2] : 0;
#pragma unroll
  for (int n = 0; n < NT; ++n)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int r = n * 8 + lane % 4 * 2 + j;
      if (r < a.rows) from_float(a.y_bf16[r * a.y_stride + o], silu(as_bf16(sum[n][j] + gate_bias)) * as_bf16(sum[n][j + 2] + up_bias));
    }
}

// The same where all slices are in this block: through shared memory. All threads come here; the warp of the first slice gets the sum.
template <int NT> __device__ void add_local_slices(float (&sum)[NT][4], float4* partials, int warp, int local, int lane) {
#pragma unroll
  for (int n = 0; n < NT; ++n) partials[(warp * NT + n) * 32 + lane] = make_float4(sum[n][0], sum[n][1], sum[n][2], sum[n][3]);
  __syncthreads();
  if (warp % local != 0) return;
#pragma unroll
  for (int n = 0; n < NT; ++n)
    for (int s = 1; s < local; ++s) {
      const float4 p = partials[((warp + s) * NT + n) * 32 + lane];
      sum[n][0] += p.x, sum[n][1] += p.y, sum[n][2] += p.z, sum[n][3] += p.w;
    }
}

// Where a warp works: tiles first, first + stride, ... below a.tiles in `rounds` rounds of its block, inputs from k0 on.
struct Share {
  int part, slice, local, first, stride, rounds, pieces;
  __device__ Share(const Stream& a, int piece, int warps, int warp) {
    const int parts = a.slices / a.local, group = int(blockIdx.x) / parts, groups = int(gridDim.x) / parts, at_once = warps / a.local;
    part = int(blockIdx.x) % parts, local = warp % a.local, slice = part * a.local + local;
    first = group * at_once + warp / a.local, stride = groups * at_once;
    rounds = (a.tiles - group * at_once + stride - 1) / stride;
    pieces = first < a.tiles ? (a.tiles - first + stride - 1) / stride * (a.slice / piece) : 0;
  }
};

// NT: rows in eights.
template <int NT, int kRing, int kPiece> __global__ void __launch_bounds__(kMostWarps * 32, 1) stream_kernel(const __grid_constant__ Stream a) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ __align__(16) unsigned char arrived[Bulk::kBarrierBytes];
  const int warps = int(blockDim.x) / 32, warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  unsigned char* const barriers = shared + warps * kRing * piece_bytes(kPiece);
  float4* const partials = reinterpret_cast<float4*>(barriers + warps * Copies<kRing>::kBarrierBytes);
  Bf16* const xs = reinterpret_cast<Bf16*>(partials + (a.local > 1 ? warps * NT * 32 : 0));
  const Share share(a, kPiece, warps, warp);
  const int columns = a.local * a.slice;
  let_later_start();
  StreamRows rows(a, share.part * columns, columns, share.rounds, xs, arrived);
  Ring<kRing, kPiece> ring(a, shared + warp * kRing * piece_bytes(kPiece), barriers + warp * Copies<kRing>::kBarrierBytes, share.first, share.stride, share.slice * a.slice, share.pieces);
  for (int i = 0; i < kRing - 1; ++i) ring.ask();
  rows.begin();
  wait_for_earlier();
  rows.load();

  unsigned x[NT];
  row_addresses<NT>(x, xs + share.local * a.slice, a.rows, rows.pitch(), lane);
  for (int round = 0, turn = 0, tile = share.first; round < share.rounds; ++round, tile += share.stride) {
    float sum[NT][4] = {};
    for (int begin = 0; begin < a.slice; begin += a.depth, ++turn) {
      const int behind = rows.by_turns() ? rows.wait(turn) : 0;
      for (int k = 0; k < a.depth && tile < a.tiles; k += kPiece) {
        const unsigned piece = ring.take();
        ring.ask();  // into the place of the piece before this one, which all lanes have read
        multiply_piece<NT, kPiece>(sum, piece, x, behind + k, lane);
        __syncwarp();
      }
      if (rows.by_turns()) rows.done(turn);
    }
    if (a.local > 1) add_local_slices<NT>(sum, partials, warp, a.local, lane);
    if (tile < a.tiles && share.local == 0 && (a.slices == a.local || add_slices<NT>(a, sum, share.slice, tile, lane))) {
      if (a.gated) write_gated<NT>(a, sum, tile, lane);
      else write_tile<NT>(a, sum, tile, lane);
    }
    if (a.local > 1 && round + 1 < share.rounds) __syncthreads();
  }
}

using Kernel = void (*)(Stream);
template <int NT> Kernel kernel_of(int ring, int piece) {
  if (piece == 64) return ring == 3 ? stream_kernel<NT, 3, 64> : stream_kernel<NT, 4, 64>;
  if (piece == 256) return stream_kernel<NT, 3, 256>;
  return ring == 3 ? stream_kernel<NT, 3, 128> : ring == 4 ? stream_kernel<NT, 4, 128> : ring == 5 ? stream_kernel<NT, 5, 128> : stream_kernel<NT, 6, 128>;
}

}  // namespace

void stream_product(CudaBackend& backend, const StreamPlan& plan, const Tensor& y, const ProductInput& input, const Tensor& matrix, const Tensor& bias, ProductEnd end,
                    const Tensor& partials, const Tensor& counters) {
  Stream a = {};
  a.w = matrix.data<Bf16>(), a.out = int(matrix.dim(0)), a.in = int(matrix.dim(1)), a.tiles = (a.out + 15) / 16;
  a.kind = stream_input(input);
  a.x = input.x.raw(), a.x_stride = input.x.row_stride(), a.rows = int(input.rows());
  if (input.gain) a.gain = input.gain.data<float>(), a.epsilon = input.epsilon;
  a.slices = plan.slices, a.slice = a.in / a.slices, a.local = plan.local, a.depth = plan.depth;
  if (bias) a.bias = bias.data<float>();
  a.partials = partials.data<float>(), a.counters = counters.data<int>();
  if (y.dtype() == DType::f32) a.y = y.data<float>();
  else a.y_bf16 = y.data<Bf16>();
  a.y_stride = y.row_stride(), a.adds = end == ProductEnd::added, a.gated = end == ProductEnd::gated;
  const Grid grid{dim3(unsigned(plan.blocks)), plan.warps * 32, std::size_t(stream_bytes(plan, a.kind, a.rows, a.in)), 1, backend.overlaps()};
  launch_kernel("a product", backend.cuda_stream(), grid, a.rows <= 8 ? kernel_of<1>(plan.ring, plan.piece) : kernel_of<2>(plan.ring, plan.piece), a);
}

}  // namespace foretoken
