#include "kernels/cpu/arena.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <string>

#include <sys/mman.h>

#include "kernels/out_of_memory.h"

namespace foretoken {
namespace {

// Under the address sanitizer no block is reused, so that it detects stale tensors.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kReuse = false;
#else
constexpr bool kReuse = true;
#endif

// Class c holds blocks of (4 + c % 4) << (c / 4 + 5) bytes: 128, 160, 192, 224, 256, 320, ...
std::size_t block_bytes(int c) { return std::size_t(4 + c % 4) << (c / 4 + 5); }

int size_class(std::size_t bytes) {
  if (bytes <= 128) return 0;
  const int top = int(std::bit_width(bytes - 1)) - 1;  // bytes in (2^top, 2^(top + 1)]
  const int quarter = int((bytes - 1) >> (top - 2) & 3u);
  return (top - 7) * 4 + quarter + 1;
}

[[noreturn]] void out_of_memory(std::size_t bytes) { throw OutOfMemory::on_host(bytes); }

constexpr std::size_t kHugePage = std::size_t(2) << 20;

// Large blocks use huge pages: the pages of a KV cache are far apart, and otherwise each layer of each page would need
// its own TLB entry.
void* fresh_block(std::size_t bytes) {
  const std::size_t alignment = bytes < 2 * kHugePage ? 64 : kHugePage;
  const std::size_t size = (bytes + alignment - 1) / alignment * alignment;
  void* block = std::aligned_alloc(alignment, size);
  if (!block) out_of_memory(bytes);
  if (alignment == kHugePage) madvise(block, size, MADV_HUGEPAGE);  // a system without huge pages uses small ones
  return block;
}

// Makes shared_ptr put its reference count into the block's header; the block is returned when the count is destroyed.
template <class T> struct InHeader {
  using value_type = T;
  std::shared_ptr<Arena> arena;
  void* block;
  int block_class;

  InHeader(std::shared_ptr<Arena> a, void* b, int c) : arena(std::move(a)), block(b), block_class(c) {}
  template <class U> InHeader(const InHeader<U>& other)
      : arena(other.arena), block(other.block), block_class(other.block_class) {}
  T* allocate(std::size_t) {
    static_assert(sizeof(T) <= Arena::kHeader);
    return static_cast<T*>(block);
  }
  void deallocate(T*, std::size_t) { arena->release(block, block_class); }
  template <class U> bool operator==(const InHeader<U>& other) const { return block == other.block; }
};

}  // namespace

Arena::~Arena() {
  for (auto& list : free_)
    for (void* block : list) std::free(block);
}

Tensor Arena::allocate(Shape shape, DType dtype) {
  const std::size_t bytes = std::size_t(shape.elements() * size_of(dtype)) + kHeader;
  const int c = size_class(bytes);
  void* block = nullptr;
  {
    std::lock_guard lock(lock_);
    if (!free_[std::size_t(c)].empty()) {
      block = free_[std::size_t(c)].back();
      free_[std::size_t(c)].pop_back();
    }
    held_ += std::int64_t(block_bytes(c));
    most_ = std::max(most_, held_);
  }
  if (!block) block = fresh_block(kReuse ? block_bytes(c) : bytes);
  void* data = static_cast<std::byte*>(block) + kHeader;
  std::shared_ptr<void> owner(data, [](void*) {}, InHeader<std::byte>(shared_from_this(), block, c));
  return Tensor(std::move(owner), data, shape, dtype);
}

void Arena::release(void* block, int c) {
  std::lock_guard lock(lock_);
  held_ -= std::int64_t(block_bytes(c));
  if (!kReuse) return std::free(block);
  free_[std::size_t(c)].push_back(block);
}

MemoryUse Arena::memory() const {
  std::lock_guard lock(lock_);
  return {held_, most_, 0};
}

void Arena::restart_peak() {
  std::lock_guard lock(lock_);
  most_ = held_;
}

struct WeightMemory::Slab {
  static constexpr std::size_t kSize = std::size_t(32) << 20;

  explicit Slab(std::size_t bytes) : size((std::max(bytes, kSize) + kHugePage - 1) / kHugePage * kHugePage) {
    // One huge page more than needed, so that the used part can begin at a boundary. Untouched pages cost nothing.
    mapping =
        mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) out_of_memory(size);
    const auto address = reinterpret_cast<std::uintptr_t>(mapping);
    begin = static_cast<std::byte*>(mapping) + (kHugePage - address % kHugePage) % kHugePage;
    madvise(begin, size, MADV_HUGEPAGE);
  }
  ~Slab() { munmap(mapping, size + kHugePage); }

  std::size_t size, used = 0;
  void* mapping;
  std::byte* begin;
};

std::shared_ptr<void> WeightMemory::allocate(std::size_t bytes) {
  bytes = (bytes + 63) / 64 * 64;
  if (!slab_ || slab_->used + bytes > slab_->size) slab_ = std::make_shared<Slab>(bytes);
  void* p = slab_->begin + slab_->used;
  slab_->used += bytes;
  return {slab_, p};
}

}  // namespace foretoken
