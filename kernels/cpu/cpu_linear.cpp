// The products of the CPU backend, alone and with the row work before and after them: see product_rows.h for the
// mathematics and the roofline. A fork costs about as much as the row work of a few rows, so row work shares the forks
// of the products.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_backend.h"

namespace foretoken {
namespace {

// Approximate microseconds of one thread, to decide what is worth a fork (which costs about one).
double estimated_time(const PackedWeight& w, std::int64_t rows) {
  return std::max(double(w.bytes()) / 50e3, 2.0 * double(rows * w.out * w.inputs) / 300e3);
}

// Panels that a thread takes at a time: two for one row; with more rows one, so that threads finish at about the same
// time.
std::int64_t chunk_of(std::int64_t rows) { return rows == 1 ? 2 : 1; }

// Pieces into which the rows of a product with few panels are divided, so that all threads have work; one: they are
// not. A piece is large enough that the weights that it reads once more cost little.
std::int64_t pieces_of(std::int64_t rows, std::int64_t panels, std::int64_t threads) {
  constexpr std::int64_t kPiece = 64, kPanelsEach = 4;
  return panels < kPanelsEach * threads ? std::max<std::int64_t>(rows / kPiece, 1) : 1;
}

bool rounds(const Operations& operations, const PackedWeight& w) {
  return w.packing != Packing::f32 && operations.rounds_to_bf16;
}

Product product_of(const PackedWeight& w, const Tensor& rows, const Tensor& y, bool accumulate) {
  Product p{};
  p.weights = w.data.get();
  if (!w.dense()) p.codes = w.codes();
  p.x = rows.raw(), p.x_stride = rows.row_stride();
  p.y = y.data<float>(), p.y_stride = y.row_stride();
  p.rows = rows.dim(0), p.inputs = w.inputs, p.out = w.out;
  p.accumulate = accumulate;
  p.next = w.panel_bytes();
  return p;
}

// One row of x in the layout that the product reads: w.inputs numbers, padded with zeros, in bf16 where the
// instructions take that.
void arrange(const Operations& operations, const float* x, const PackedWeight& w, void* to) {
  std::vector<float> ordered;
  for (const std::int32_t i : w.order) ordered.push_back(x[i]);
  if (!ordered.empty()) x = ordered.data();
  if (rounds(operations, w)) {
    auto* y = static_cast<std::uint16_t*>(to);
    operations.to_bf16(x, y, w.in);
    std::fill(y + w.in, y + w.inputs, std::uint16_t(0));
  } else {
    auto* y = static_cast<float*>(to);
    if (y != x) std::memcpy(y, x, std::size_t(w.in) * sizeof(float));
    std::fill(y + w.in, y + w.inputs, 0.0f);
  }
}

void* row_of(const Tensor& t, std::int64_t r) {
  return static_cast<std::byte*>(t.raw()) + r * t.row_stride() * size_of(t.dtype());
}

}  // namespace

std::shared_ptr<const PackedWeight> CpuBackend::packed(const Weight& w) {
  if (w.prepared) return std::static_pointer_cast<const PackedWeight>(w.prepared);
  return std::make_shared<const PackedWeight>(pack(w, operations_.rounds_to_bf16, weight_memory_, pool_));
}

// A block of a product reads some hundred inputs of up to ten rows again and again. So that they lie in different sets
// of an L1 cache of 64 sets, a row begins about a quarter of these sets behind the one before it.
Tensor CpuBackend::allocate_rows(std::int64_t rows, std::int64_t inputs, DType dtype) {
  constexpr std::int64_t kLine = 64, kSets = 32, kBehind = 17;
  const std::int64_t lines = (inputs * size_of(dtype) + kLine - 1) / kLine,
                     apart = (lines - kBehind + kSets - 1) / kSets * kSets + kBehind;
  return allocate({rows, (rows > 1 ? apart : lines) * kLine / size_of(dtype)}, dtype).columns(0, inputs);
}

Tensor CpuBackend::arranged(const Tensor& x, const PackedWeight& w) {
  const bool round = rounds(operations_, w);
  if (!round && w.inputs == w.in && w.order.empty() && x.dense()) return x;
  const Tensor y = allocate_rows(x.dim(0), w.inputs, round ? DType::bf16 : DType::f32);
  for_rows(x.dim(0), w.in, [&](std::int64_t r) { arrange(operations_, x.row<float>(r), w, row_of(y, r)); });
  return y;
}

Tensor CpuBackend::normed(const Tensor& x, const Tensor& gain, float epsilon, const PackedWeight& w) {
  expect_rows("rms_norm", x, gain.dim(0));
  const Tensor h = allocate_rows(x.dim(0), w.inputs, DType::f32);
  const Tensor y = rounds(operations_, w) ? allocate_rows(x.dim(0), w.inputs, DType::bf16) : h;
  for_rows(x.dim(0), 2 * w.in, [&](std::int64_t r) {
    operations_.rms_norm(x.row<float>(r), gain.data<float>(), epsilon, h.row<float>(r), w.in);
    arrange(operations_, h.row<float>(r), w, row_of(y, r));
  });
  return y;
}

void CpuBackend::multiply(const Tensor& rows, const PackedWeight& w, Tensor y, bool accumulate) {
  const std::int64_t n = rows.dim(0), pieces = pieces_of(n, w.panels, pool_.threads());
  if (n == 0) return;
  const auto panels = operations_.product[int(w.packing)];
  if (pieces == 1) {
    const Product p = product_of(w, rows, y, accumulate);
    return for_panels(w, n, [&](std::int64_t begin, std::int64_t end) { panels(p, begin, end); });
  }
  const auto one = [&](int i) {  // a thread takes the panels of one piece, whose rows stay in its cache
    const std::int64_t piece = i / w.panels, panel = i % w.panels, begin = n * piece / pieces,
                       count = n * (piece + 1) / pieces - begin;
    panels(product_of(w, rows.rows(begin, count), y.rows(begin, count), accumulate), panel, panel + 1);
  };
  pool_.run(int(pieces * w.panels), one);
}

void CpuBackend::for_panels(const PackedWeight& w, std::int64_t rows,
                            const std::function<void(std::int64_t, std::int64_t)>& f) {
  if (estimated_time(w, rows) < 2.5) return f(0, w.panels);
  const std::int64_t chunk = chunk_of(rows);
  pool_.run(int((w.panels + chunk - 1) / chunk), [&](int c) { f(c * chunk, std::min(w.panels, (c + 1) * chunk)); });
}

Tensor CpuBackend::gated(const Tensor& rows, const PackedWeight& gate_up, const PackedWeight& down) {
  const std::int64_t n = rows.dim(0), half = gate_up.panels / 2, chunk = std::min(chunk_of(n), half);
  const Tensor both = allocate({n, gate_up.out}, DType::f32);
  const bool round = rounds(operations_, down);
  const Tensor y = allocate_rows(n, down.inputs, round ? DType::bf16 : DType::f32);
  Product gates = product_of(gate_up, rows, both, false), ups = gates;
  if (chunk == 1) {  // panels of both halves alternate
    const std::int64_t panel_bytes = gates.next;
    gates.next = half * panel_bytes, ups.next = panel_bytes - gates.next;
  }
  const auto panels = operations_.product[int(gate_up.packing)];
  const auto some = [&](int c) {
    const std::int64_t begin = c * chunk, end = std::min(half, begin + chunk), at = begin * kPanel,
                       width = end * kPanel - at;
    panels(gates, begin, end);
    panels(ups, half + begin, half + end);
    for (std::int64_t r = 0; r < n; ++r) {
      float* gate = both.row<float>(r) + at;
      float* h = round ? gate : y.row<float>(r) + at;
      operations_.silu_mul(gate, gate + half * kPanel, h, width);
      if (round) operations_.to_bf16(gate, y.row<std::uint16_t>(r) + at, width);
    }
  };
  const int chunks = int((half + chunk - 1) / chunk);
  if (estimated_time(gate_up, n) < 2.5)
    for (int c = 0; c < chunks; ++c) some(c);
  else
    pool_.run(chunks, some);
  return y;
}

Tensor CpuBackend::linear(const Tensor& x, const Weight& w) {
  Tensor y = allocate({x.dim(0), w.out}, DType::f32);
  linear_to(y, x, w);
  return y;
}

void CpuBackend::linear_to(Tensor y, const Tensor& x, const Weight& w) {
  expect_rows("linear", x, w.in);
  expect_rows("linear", y, w.out);
  const auto weight = packed(w);
  if (w.activations)
    multiply_rounded(x, *weight, y, false);
  else
    multiply(arranged(x, *weight), *weight, y, false);
  add_bias(y, w);
}

void CpuBackend::linear_add(Tensor x, const Tensor& h, const Weight& w) {
  expect_rows("linear_add", h, w.in);
  expect_rows("linear_add", x, w.out);
  const auto weight = packed(w);
  if (w.activations)
    multiply_rounded(h, *weight, x, true);
  else
    multiply(arranged(h, *weight), *weight, x, true);
  add_bias(x, w);
}

Tensor CpuBackend::norm_linear(const Tensor& x, const Tensor& gain, float epsilon, const Weight& w) {
  expect_rows("norm_linear", x, w.in);
  if (w.activations) return Backend::norm_linear(x, gain, epsilon, w);
  const auto weight = packed(w);
  Tensor y = allocate({x.dim(0), w.out}, DType::f32);
  multiply(normed(x, gain, epsilon, *weight), *weight, y, false);
  add_bias(y, w);
  return y;
}

bool CpuBackend::can_gate(const Weight& gate_up, const Weight& down, const PackedWeight& packed_down) {
  return !gate_up.activations && !down.activations && gate_up.out % (2 * kPanel) == 0 && gate_up.out / 2 == down.in &&
         packed_down.order.empty() && !gate_up.bias && !down.bias;
}

// The thread that computes some outputs of the gate also computes the same outputs of the other half, and silu_mul of
// both while they are in its cache. Inputs that are rounded need all of their row first.
void CpuBackend::feed_forward(Tensor x, const Tensor& gain, float epsilon, const Weight& gate_up, const Weight& down) {
  if (gate_up.activations || down.activations) return Backend::feed_forward(x, gain, epsilon, gate_up, down);
  const auto first = packed(gate_up), second = packed(down);
  if (!can_gate(gate_up, down, *second) || x.dim(0) == 0) return Backend::feed_forward(x, gain, epsilon, gate_up, down);
  expect_rows("feed_forward", x, gate_up.in);
  expect_rows("feed_forward", x, down.out);
  multiply(gated(normed(x, gain, epsilon, *first), *first, *second), *second, x, true);
}

}  // namespace foretoken
