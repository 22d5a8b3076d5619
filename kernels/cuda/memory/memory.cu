// allocate: device memory from a cache of blocks. Bytes moved: none.
#include <algorithm>

#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/memory/memory.cuh"

namespace foretoken {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }
std::string mebibytes(std::int64_t bytes) { return std::to_string(round_up(bytes, 1 << 20) >> 20) + " MiB"; }

}  // namespace

CudaPool::~CudaPool() {
  for (const auto& [address, block] : blocks_)
    if (block.begins_slab) (void)cudaFree(address);
}

bool CudaPool::grow(std::int64_t bytes) {
  constexpr std::int64_t kSlab = 64 << 20, kGranule = 2 << 20;
  void* slab = nullptr;
  std::int64_t size = bytes <= kSlab / 4 ? kSlab : round_up(bytes, kGranule);
  if (cudaMalloc(&slab, std::size_t(size)) != cudaSuccess) {
    size = round_up(bytes, kGranule);
    if (cudaMalloc(&slab, std::size_t(size)) != cudaSuccess) {
      (void)cudaGetLastError();
      return false;
    }
  }
  blocks_[static_cast<char*>(slab)] = {size, true, true};
  free_.insert({size, static_cast<char*>(slab)});
  idle_ += size, bytes_ += size;
  return true;
}

void* CudaPool::take(std::int64_t bytes) {
  auto found = free_.lower_bound({bytes, nullptr});
  if (found == free_.end() || (found->first > kWhole && bytes < found->first / 2)) {
    if (!grow(bytes)) return nullptr;
    found = free_.lower_bound({bytes, nullptr});
  }
  char* const at = found->second;
  free_.erase(found);
  Block& block = blocks_.at(at);
  if (block.bytes > bytes && block.bytes <= kWhole) {
    blocks_[at + bytes] = {block.bytes - bytes, true, false};
    free_.insert({block.bytes - bytes, at + bytes});
    block.bytes = bytes;
  }
  block.free = false;
  idle_ -= block.bytes;
  return at;
}

// Merges `block` with the next block, if that is free and in the same slab; the caller inserts the result into free_.
void CudaPool::join(Blocks::iterator block) {
  const auto next = std::next(block);
  if (next == blocks_.end() || !next->second.free || next->second.begins_slab) return;
  free_.erase({next->second.bytes, next->first});
  block->second.bytes += next->second.bytes;
  blocks_.erase(next);
}

void CudaPool::give(void* address) {
  auto block = blocks_.find(static_cast<char*>(address));
  idle_ += block->second.bytes;
  block->second.free = true;
  join(block);
  free_.insert({block->second.bytes, block->first});
  if (block->second.begins_slab || !std::prev(block)->second.free) return;
  block = std::prev(block);
  free_.erase({block->second.bytes, block->first});
  join(block);
  free_.insert({block->second.bytes, block->first});
}

void CudaPool::trim() {
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    const auto next = std::next(block);
    const bool whole =
        block->second.begins_slab && block->second.free && (next == blocks_.end() || next->second.begins_slab);
    if (whole) {
      free_.erase({block->second.bytes, block->first});
      idle_ -= block->second.bytes, bytes_ -= block->second.bytes;
      check(cudaFree(block->first), "returning memory");
      blocks_.erase(block);
    }
    block = next;
  }
}

void* CudaMemory::take(CudaPool& pool, std::int64_t bytes) {
  void* block = pool.take(bytes);
  if (block == nullptr) {
    eager_.trim();
    block = pool.take(bytes);
  }
  if (block != nullptr) return block;
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for free memory");
  throw OutOfMemory("cuda: no room for " + mebibytes(bytes) + " more on GPU " + std::to_string(device_) + ": " +
                    mebibytes(std::int64_t(free)) + " of " + mebibytes(std::int64_t(total)) + " are free");
}

Tensor CudaMemory::allocate(Shape shape, DType dtype) {
  const std::int64_t bytes =
      round_up(std::max<std::int64_t>(shape.elements() * size_of(dtype), 1), CudaPool::kAlignment);
  const std::lock_guard lock(mutex_);
  CudaPool& pool = recording_ ? recorded_ : eager_;
  void* const block = take(pool, bytes);
  most_ = std::max(most_, eager_.used());
  if (recording_) recorded_most_ = std::max(recorded_most_, recorded_.used());
  const auto give = [self = shared_from_this(), &pool](void* p) {
    const std::lock_guard again(self->mutex_);
    pool.give(p);
  };
  return Tensor(std::shared_ptr<void>(block, give), block, shape, dtype, {Device::Kind::cuda, device_});
}

std::int64_t CudaMemory::free_bytes() {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for free memory");
  const std::lock_guard lock(mutex_);
  return std::int64_t(free) + eager_.idle();
}

MemoryUse CudaMemory::use() const {
  const std::lock_guard lock(mutex_);
  return {eager_.used(), most_, recorded_.bytes()};
}

void CudaMemory::recording(bool on) {
  const std::lock_guard lock(mutex_);
  recording_ = on;
  if (on) recorded_before_ = recorded_most_ = recorded_.used();
}

std::int64_t CudaMemory::recorded_bytes() const {
  const std::lock_guard lock(mutex_);
  return recorded_most_ - recorded_before_;
}

void CudaMemory::replayed(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  most_ = std::max(most_, eager_.used() + bytes);
}

void CudaMemory::restart_peak() {
  const std::lock_guard lock(mutex_);
  most_ = eager_.used();
}

Tensor CudaBackend::allocate(Shape shape, DType dtype) {
  enter();
  return memory_->allocate(shape, dtype);
}

std::int64_t CudaBackend::free_memory() const {
  enter();
  return memory_->free_bytes();
}

MemoryUse CudaBackend::memory() const {
  enter();
  return memory_->use();
}

void CudaBackend::restart_peak() {
  enter();
  memory_->restart_peak();
}

}  // namespace foretoken
