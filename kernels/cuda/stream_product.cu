// y = x W^T + b for at most 16 rows. W bf16 [out, in], sums in f32.
// Bytes: the matrix, out * in * 2, once; x comes from L2, once per block.
// A warp takes 16 outputs (a tile) and one slice of the inputs. It copies 16 x 64 pieces of W into a ring of its own, several
// ahead, and multiplies them by the rows of x in shared memory: mma.m16n8k16, k ascending in one chain, so a result does not
// depend on how many rows there are (and has the same bits as cuBLASLt without split-K, measured on an H200). With several slices,
// whoever finishes a tile last adds all slices in order.
// The rings fill before the kernel waits for the one before it, and more of W is asked into L2: weights are there when x is.
#include "kernels/cuda/stream_product.cuh"

#include <algorithm>

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/stream_input.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace foretoken {
namespace {

constexpr int kPiece = 64, kPieceBytes = 16 * kPiece * 2, kMostWarps = 16;

// ---- the matrix ----

// Which piece comes next: 64 inputs of a tile, then the next 64, then the next tile of the warp.
struct Place {
  int tile, k = 0, left;
  __device__ void next(int slice, int stride) {
    k += kPiece, --left;
    if (k == slice) k = 0, tile += stride;
  }
};

// Keeps the pieces of a warp's tiles coming.
template <int kRing> class Ring {
 public:
  __device__ Ring(const Stream& a, unsigned char* memory, int tile, int stride, int k0, int count)
      : a_(a), memory_(shared_address(memory)), lane_(int(threadIdx.x) % 32), stride_(stride), k0_(k0), policy_(read_once()), ask_{tile, 0, count}, far_{tile, 0, count} {}

  // Asks for the next piece, if there is one. A group is committed in either case.
  __device__ void ask() {
    if (ask_.left > 0) {
      const unsigned to = memory_ + unsigned(place_ * kPieceBytes);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int row = lane_ / 8 + 4 * j, chunk = lane_ % 8;  // 8 lanes copy the 128 bytes of a row
        copy_async(to + unsigned(row * kPiece * 2 + (chunk ^ (row & 7)) * 16), at(ask_, row) + chunk * 8, policy_);
      }
      if (++place_ == kRing) place_ = 0;
      ask_.next(a_.slice, stride_);
    }
    commit_copies();
  }
  // Asks for `kFar` pieces more in L2, behind those that were asked for so far.
  static constexpr int kFar = 4;
  __device__ void ask_far() {
    if (far_.left <= 0) return;
    const int pieces = min(kFar, (a_.slice - far_.k) / kPiece);
    if (lane_ < 16) prefetch_to_l2(at(far_, lane_), unsigned(pieces * kPiece * 2));
    for (int i = 0; i < pieces; ++i) far_.next(a_.slice, stride_);
  }
  __device__ void skip_far() { far_.next(a_.slice, stride_); }
  __device__ int lead() const { return ask_.left - far_.left; }  // pieces between the ring and what L2 was asked for

 private:
  __device__ const Bf16* at(const Place& p, int row) const { return a_.w + std::int64_t(min(p.tile * 16 + row, a_.out - 1)) * a_.in + k0_ + p.k; }

  const Stream& a_;
  unsigned memory_;
  int lane_, stride_, k0_, place_ = 0;
  std::uint64_t policy_;
  Place ask_, far_;
};

// One piece of the ring times the rows of x.
template <int NT> __device__ void multiply_piece(float (&sum)[NT][4], unsigned piece, const unsigned (&x)[NT], int k, int lane) {
  constexpr int kSteps = kPiece / 16;
  const unsigned at = piece + unsigned(lane % 16 * kPiece * 2);
  unsigned w[kSteps][4], b[NT][kSteps / 2][4];
#pragma unroll
  for (int s = 0; s < kSteps; ++s) load_matrices(w[s], at + unsigned(((2 * s + lane / 16) ^ (lane & 7)) * 16));
#pragma unroll
  for (int n = 0; n < NT; ++n)
#pragma unroll
    for (int s = 0; s < kSteps / 2; ++s) load_matrices(b[n][s], x[n] + unsigned((k + s * 32) * 2));
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

// NT: rows in eights. Blocks: groups of tiles x slices, slices fastest.
template <int NT, int kRing> __global__ void __launch_bounds__(kMostWarps * 32, 1) stream_kernel(const __grid_constant__ Stream a) {
  extern __shared__ __align__(128) unsigned char shared[];
  const int warps = int(blockDim.x) / 32, warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  unsigned char* const memory = shared + warp * kRing * kPieceBytes;
  Bf16* const xs = reinterpret_cast<Bf16*>(shared + warps * kRing * kPieceBytes);
  const int slice = int(blockIdx.x) % a.slices, groups = int(gridDim.x) / a.slices, stride = groups * warps;
  const int first = warp * groups + int(blockIdx.x) / a.slices;  // neighbours go to different blocks: the last round spreads over all
  const int k0 = slice * a.slice, pitch = a.slice + 8;
  const int count = first < a.tiles ? (a.tiles - first + stride - 1) / stride * (a.slice / kPiece) : 0;
  let_later_start();
  Ring<kRing> ring(a, memory, first, stride, k0, count);
#pragma unroll
  for (int i = 0; i < kRing - 1; ++i) ring.ask(), ring.skip_far();
  while (ring.lead() < a.ahead && ring.lead() < count - (kRing - 1)) ring.ask_far();
  wait_for_earlier();
  load_rows(a, k0, xs, pitch);
  __syncthreads();

  unsigned x[NT];
  row_addresses<NT>(x, xs, a.rows, pitch, lane);
  float sum[NT][4] = {};
  int place = 0, k = 0, tile = first;
  for (int i = 0; i < count; ++i) {
    wait_for_copies<kRing - 2>();
    __syncwarp();
    multiply_piece<NT>(sum, shared_address(memory) + unsigned(place * kPieceBytes), x, k, lane);
    if (++place == kRing) place = 0;
    if (ring.lead() < a.ahead) ring.ask_far();
    ring.ask();
    k += kPiece;
    if (k < a.slice) continue;
    if (a.slices == 1 || add_slices<NT>(a, sum, slice, tile, lane)) write_tile<NT>(a, sum, tile, lane);
#pragma unroll
    for (int n = 0; n < NT; ++n) sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0;
    k = 0, tile += stride;
  }
}

std::int64_t shared_bytes(const StreamPlan& plan, int rows, std::int64_t in) { return plan.warps * plan.ring * kPieceBytes + rows * (in / plan.slices + 8) * 2; }

using Kernel = void (*)(Stream);
Kernel kernel_of(int rows, int ring) {
  if (ring == 3) return rows <= 8 ? stream_kernel<1, 3> : stream_kernel<2, 3>;
  if (ring == 4) return rows <= 8 ? stream_kernel<1, 4> : stream_kernel<2, 4>;
  return rows <= 8 ? stream_kernel<1, 6> : stream_kernel<2, 6>;
}

}  // namespace

StreamPlan stream_plan(const CudaBackend& backend, std::int64_t out, std::int64_t in, int rows) {
  StreamPlan plan;
  plan.slices = splits_of(out, in);
  const std::int64_t tiles = (out + 15) / 16, groups = std::max(1, backend.multiprocessors() / plan.slices);
  std::int64_t least = INT64_MAX;
  for (int warps = 4; warps <= kMostWarps; ++warps) {
    const std::int64_t rounds = (tiles + groups * warps - 1) / (groups * warps);
    if (rounds * warps < least || (rounds * warps == least && warps <= 8)) least = rounds * warps, plan.warps = warps;
  }
  plan.blocks = int(std::min(groups, (tiles + plan.warps - 1) / plan.warps)) * plan.slices;
  plan.ring = plan.warps <= 8 ? 6 : 3;
  plan.ahead = 128 * 1024 / (kPieceBytes * plan.warps);
  while (plan.ring > 3 && shared_bytes(plan, rows, in) > backend.shared_memory() / 2) plan.ring = plan.ring == 6 ? 4 : 3;
  return plan;
}

bool can_stream(const CudaBackend& backend, const ProductInput& input, std::int64_t out, std::int64_t in) {
  const Tensor& x = input.x;
  if (x.dim(0) > CudaProducts::kStreamRows || in % (splits_of(out, in) * kPiece) != 0 || !in_fours(x)) return false;
  const StreamPlan plan = stream_plan(backend, out, in, int(x.dim(0)));
  const std::int64_t tiles = (out + 15) / 16;
  return tiles <= kMostTiles && plan.slices * tiles * 16 * 16 <= kMostPartials * (plan.slices == 1 ? 1 << 20 : 1) &&
         shared_bytes(plan, int(x.dim(0)), in) + 1024 <= backend.shared_memory() && (input.kind != ProductInput::Kind::silu || x.dtype() == DType::bf16);
}

void stream_product(CudaBackend& backend, const StreamPlan& plan, const Tensor& y, const ProductInput& input, const Tensor& matrix, const Tensor& bias, bool adds,
                    const Tensor& partials, const Tensor& counters) {
  Stream a = {};
  a.w = matrix.data<Bf16>(), a.out = int(matrix.dim(0)), a.in = int(matrix.dim(1)), a.tiles = (a.out + 15) / 16;
  const bool wide = input.x.dtype() == DType::f32;
  a.kind = input.kind == ProductInput::Kind::norm ? StreamInput::norm : input.kind == ProductInput::Kind::silu ? StreamInput::silu : wide ? StreamInput::f32 : StreamInput::bf16;
  a.x = input.x.raw(), a.x_stride = input.x.row_stride(), a.rows = int(input.rows());
  if (input.gain) a.gain = input.gain.data<float>(), a.epsilon = input.epsilon;
  a.slices = plan.slices, a.slice = a.in / a.slices, a.ahead = plan.ahead;
  if (bias) a.bias = bias.data<float>();
  a.partials = partials.data<float>(), a.counters = counters.data<int>();
  if (y.dtype() == DType::f32) a.y = y.data<float>();
  else a.y_bf16 = y.data<Bf16>();
  a.y_stride = y.row_stride(), a.adds = adds;
  const Grid grid{dim3(unsigned(plan.blocks)), plan.warps * 32, std::size_t(shared_bytes(plan, a.rows, a.in)), 1, backend.overlaps()};
  launch_kernel("a product", backend.cuda_stream(), grid, kernel_of(a.rows, plan.ring), a);
}

}  // namespace foretoken
