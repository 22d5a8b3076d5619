// upload, copy, fetch, mirror, push, constants: bytes between host and device. Each moves its bytes once over the bus,
// and once more through pinned memory on the host. Few bytes are moved by a kernel that accesses the pinned memory
// directly: a copy engine takes 9 us to begin after a kernel, and the next kernel begins 7 us after its end (measured
// on an H200), whereas a kernel runs concurrently with the kernels before and after it.
#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/memory/transfers.cuh"
#include "kernels/host_backend.h"
#include "kernels/in_shares.h"

namespace foretoken {

namespace {

// Both sides divided into the same rows; one of them may be dense.
std::pair<ByteRows, ByteRows> matched(ByteRows a, ByteRows b) {
  const auto cut = [](ByteRows& dense, const ByteRows& by) {
    dense.rows = by.rows, dense.bytes = dense.pitch = by.bytes;
  };
  if (a.rows == 1 && b.rows > 1) cut(a, b);
  if (b.rows == 1 && a.rows > 1) cut(b, a);
  return {a, b};
}

void copy_rows(const ByteRows& from, const ByteRows& to, cudaMemcpyKind kind, cudaStream_t stream) {
  if (from.rows * from.bytes == 0) return;
  if (from.rows == 1) return check(cudaMemcpyAsync(to.at, from.at, std::size_t(from.bytes), kind, stream), "copying");
  check(cudaMemcpy2DAsync(to.at, std::size_t(to.pitch), from.at, std::size_t(from.pitch), std::size_t(from.bytes),
                          std::size_t(from.rows), kind, stream),
        "copying");
}

// One core copies a fifth of what the bus carries, so a large piece is divided among some.
void fill(char* pinned, const char* from, std::int64_t bytes) {
  constexpr std::int64_t kWorth = 2 << 20, kMost = 4;  // bytes that are worth a thread; threads
  if (bytes < 2 * kWorth) {  // most pieces: asking for the cores takes as long as to copy 300 KB
    std::memcpy(pinned, from, std::size_t(bytes));
    return;
  }
  static const std::int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const std::int64_t shares = std::min({bytes / kWorth, kMost, cores});
  in_shares(shares, [=](std::int64_t s) {
    const std::int64_t begin = bytes * s / shares, end = bytes * (s + 1) / shares;
    std::memcpy(pinned + begin, from + begin, std::size_t(end - begin));
  });
}

// One 16-byte word a thread; of the last word, bytes after the end are not written.
constexpr int kWordThreads = 128;
constexpr std::int64_t kFewBytes = 64 << 10;  // the bus moves them in two microseconds

__device__ uint4 load_word(const char* from, std::int64_t bytes, std::int64_t at) {
  if (at + 16 <= bytes)
    return __ldcv(reinterpret_cast<const uint4*>(
        from + at));  // not from a cache: the host may have written there since the last read
  std::uint32_t part[4] = {};
  for (int i = 0; at + i < bytes; ++i)
    part[i / 4] |= std::uint32_t(static_cast<unsigned char>(__ldcv(from + at + i))) << 8 * (i % 4);
  return {part[0], part[1], part[2], part[3]};
}

__device__ void store_word(char* to, std::int64_t bytes, std::int64_t at, const uint4& word) {
  if (at + 16 <= bytes) {
    *reinterpret_cast<uint4*>(to + at) = word;
    return;
  }
  const std::uint32_t part[4] = {word.x, word.y, word.z, word.w};
  for (int i = 0; at + i < bytes; ++i) to[at + i] = char(part[i / 4] >> 8 * (i % 4));
}

// kFromHost: the host wrote `from` before the launch, so it is read over the bus while earlier kernels still use `to`.
// kSlow: see CudaOptions::slow_pushes.
template <bool kFromHost, bool kSlow> __global__ void words_kernel(const char* from, char* to, std::int64_t bytes) {
  const std::int64_t at = 16 * (std::int64_t(blockIdx.x) * kWordThreads + threadIdx.x);
  uint4 word = {};
  if (kFromHost) word = load_word(from, bytes, at);
  wait_for_previous_kernels();
  let_next_kernel_start();
  if constexpr (kSlow)
    for (int i = 0; i < 100; ++i) __nanosleep(1000);
  if (!kFromHost) word = load_word(from, bytes, at);
  store_word(to, bytes, at, word);
}

template <bool kFromHost, bool kSlow = false> void move_words(const char* operation, cudaStream_t stream,
                                                              bool dependent_launch, const char* from, char* to,
                                                              std::int64_t bytes) {
  launch_kernel(operation, stream, {dim3(blocks_for(bytes, 16 * kWordThreads)), kWordThreads, 0, 1, dependent_launch},
                words_kernel<kFromHost, kSlow>, from, to, bytes);
}

bool in_words(const void* at) { return reinterpret_cast<std::uintptr_t>(at) % 16 == 0; }

}  // namespace

ByteRows ByteRows::of(const Tensor& t) {
  const std::int64_t size = size_of(t.dtype());
  if (t.dense()) return {static_cast<char*>(t.raw()), 1, t.bytes(), t.bytes()};
  return {static_cast<char*>(t.raw()), t.dim(0), t.dim(0) == 0 ? 0 : t.bytes() / t.dim(0), t.row_stride() * size};
}

CudaTransfers::CudaTransfers(cudaStream_t stream, bool dependent_launch, bool slow)
    : stream_(stream), dependent_launch_(dependent_launch), slow_(slow) {
  check(cudaMallocHost(&ring_, 4 * kQuarter), "allocating pinned memory");
  check(cudaMallocHost(&landing_, kLanding), "allocating pinned memory");
  for (cudaEvent_t& e : left_) check(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "making an event");
}

CudaTransfers::~CudaTransfers() {
  (void)cudaStreamSynchronize(stream_);
  for (const cudaEvent_t e : left_) (void)cudaEventDestroy(e);
  for (const cudaEvent_t e : marks_) (void)cudaEventDestroy(e);
  (void)cudaFreeHost(ring_), (void)cudaFreeHost(landing_);
}

char* CudaTransfers::reserve(std::int64_t bytes) {
  constexpr std::int64_t kAlignment = 256;
  if (used_ + bytes > kQuarter) {
    check(cudaEventRecord(left_[std::size_t(quarter_)], stream_), "recording an event");
    quarter_ = (quarter_ + 1) % 4, used_ = 0;
    // This event was recorded one round of the ring ago, or never.
    check(cudaEventSynchronize(left_[std::size_t(quarter_)]), "sending to the device");
  }
  char* const at = ring_ + quarter_ * kQuarter + used_;
  used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return at;
}

void CudaTransfers::send(const ByteRows& host, const ByteRows& device) {
  const auto [from, to] = matched(host, device);
  if (from.rows * from.bytes == 0) return;
  const std::int64_t row = from.bytes, rows = std::max<std::int64_t>(kQuarter / row, 1);
  for (std::int64_t r = 0; r < from.rows; r += rows) {
    const std::int64_t here = std::min(rows, from.rows - r);
    for (std::int64_t begin = 0; begin < row; begin += kQuarter) {  // a row that does not fit is sent in several copies
      const std::int64_t piece = std::min(kQuarter, row - begin);
      char* const pinned = reserve(here * piece);
      if (piece == from.pitch)
        fill(pinned, from.at + r * from.pitch, here * piece);
      else
        for (std::int64_t i = 0; i < here; ++i) fill(pinned + i * piece, from.at + (r + i) * from.pitch + begin, piece);
      copy_rows({pinned, here, piece, piece}, {to.at + r * to.pitch + begin, here, piece, to.pitch},
                cudaMemcpyHostToDevice, stream_);
    }
  }
}

bool CudaTransfers::push(const char* host, char* device, std::int64_t bytes) {
  if (bytes == 0) return false;
  if (bytes > kFewBytes || !in_words(device)) {
    send({const_cast<char*>(host), 1, bytes, bytes}, {device, 1, bytes, bytes});
    return false;
  }
  char* const pinned = reserve(bytes);
  std::memcpy(pinned, host, std::size_t(bytes));
  (slow_ ? move_words<true, true> : move_words<true>)("sending", stream_, dependent_launch_, pinned, device, bytes);
  return true;
}

void CudaTransfers::move(const ByteRows& from, const ByteRows& to) {
  const auto [a, b] = matched(from, to);
  copy_rows(a, b, cudaMemcpyDeviceToDevice, stream_);
}

void CudaTransfers::fetch(const Tensor& from, const Tensor& to) {
  constexpr std::int64_t kAlignment = 64;
  const std::int64_t bytes = from.bytes();
  if (landed_ + bytes > kLanding) {
    const auto [a, b] = matched(ByteRows::of(from), ByteRows::of(to));
    copy_rows(a, b, cudaMemcpyDeviceToHost, stream_);  // to pageable memory: the driver synchronizes
    return;
  }
  char* const at = landing_ + landed_;
  landed_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (bytes > 0 && bytes <= kFewBytes && from.device().kind == Device::Kind::cuda && from.dense() &&
      in_words(from.raw())) {
    move_words<false>("fetching", stream_, dependent_launch_, static_cast<const char*>(from.raw()), at, bytes);
  } else {
    const auto [a, b] = matched(ByteRows::of(from), {at, 1, bytes, bytes});
    copy_rows(a, b, cudaMemcpyDeviceToHost, stream_);
  }
  pending_.push_back({at, to});
}

void CudaTransfers::wait() {
  ++waits_;
  check(cudaStreamSynchronize(stream_), "the work queued so far");
  passed_ = next_mark_;
  for (const Landing& l : pending_) {
    const ByteRows to = ByteRows::of(l.to);
    for (std::int64_t r = 0; r < to.rows; ++r)
      std::memcpy(to.at + r * to.pitch, l.at + r * to.bytes, std::size_t(to.bytes));
  }
  pending_.clear();
  landed_ = 0;
}

Mark CudaTransfers::mark() {
  const int at = next_mark_ % kMarks;
  if (at == int(marks_.size())) {
    cudaEvent_t event;
    check(cudaEventCreate(&event), "making an event");
    marks_.push_back(event);
  }
  check(cudaEventRecord(marks_[std::size_t(at)], stream_), "recording an event");
  return {host_clock(), next_mark_++};
}

double CudaTransfers::seconds(const Mark& from, const Mark& to) const {
  const bool known =
      from.event >= 0 && to.event >= 0 && next_mark_ - from.event <= kMarks && next_mark_ - to.event <= kMarks;
  if (!known) return to.host - from.host;
  const cudaEvent_t begin = marks_[std::size_t(from.event % kMarks)], end = marks_[std::size_t(to.event % kMarks)];
  if (to.event >= passed_) check(cudaEventSynchronize(end), "waiting for a mark");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin, end), "reading the time between two marks");
  return double(milliseconds) * 1e-3;
}

Tensor CudaBackend::upload(const Tensor& host) {
  enter();
  if (host.device() == device()) return host;
  Tensor t = allocate(host.shape(), host.dtype());
  copy(host, t);
  return t;
}

void CudaBackend::copy(const Tensor& from, Tensor to) {
  enter();
  if (from.shape() != to.shape() || from.dtype() != to.dtype())
    throw Error(std::string("cuda: copy of ") + name_of(from.dtype()) + ' ' + from.shape().text() + " to " +
                name_of(to.dtype()) + ' ' + to.shape().text() + "; both must be the same");
  const bool reads = from.device().kind == Device::Kind::cuda, writes = to.device().kind == Device::Kind::cuda;
  if (!reads && !writes) return copy_on_host(from, to);
  if (reads && writes) return transfers_->move(ByteRows::of(from), ByteRows::of(to));
  if (recording())
    throw Error("cuda: a copy between host and device inside a body that is recorded; put what changes into a mirror");
  if (writes) return transfers_->send(ByteRows::of(from), ByteRows::of(to));
  transfers_->fetch(from, to);
  transfers_->wait();
}

void CudaBackend::fetch(const Tensor& from, Tensor to) {
  enter();
  if (recording()) throw Error("cuda: a fetch inside a body that is recorded; fetch behind it");
  transfers_->fetch(from, to);
}

Mirror CudaBackend::mirror(std::int64_t bytes) {
  enter();
  return {Tensor::host({bytes}, DType::u8), allocate({bytes}, DType::u8)};
}

void CudaBackend::push(const Mirror& mirror, std::int64_t bytes) {
  enter();
  if (recording()) throw Error("cuda: a push inside a body that is recorded; push before it");
  if (transfers_->push(mirror.host.rows(0, bytes).data<char>(), mirror.device.rows(0, bytes).data<char>(), bytes))
    needs_barrier_ = true;
}

Tensor CudaBackend::constants(const void* data, std::int64_t bytes) {
  enter();
  if (recording()) throw Error("cuda: host values inside a body that is recorded; put them into a mirror before it");
  const Tensor t = allocate({bytes}, DType::u8);
  transfers_->send({static_cast<char*>(const_cast<void*>(data)), 1, bytes, bytes}, ByteRows::of(t));
  return t;
}

void CudaBackend::synchronize() {
  enter();
  transfers_->wait();
}
std::uint64_t CudaBackend::waits() const { return transfers_->waits(); }
Mark CudaBackend::mark() {
  enter();
  return recording() || own_clock() ? Backend::mark() : transfers_->mark();
}
double CudaBackend::seconds(const Mark& from, const Mark& to) const { return transfers_->seconds(from, to); }

}  // namespace foretoken
