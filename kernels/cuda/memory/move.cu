// move: KV compaction of all block tables and caches by one launch. Its arguments are pushed together; rows, planes and
// tables are in one array each. Bytes: moved rows * layers * planes * kv_heads * row_bytes * 2.
#include <algorithm>

#include "kernels/cuda/cuda_backend.cuh"

namespace foretoken {
namespace {

// One plane of one layer of a cache.
struct Plane {
  std::int64_t begin;
  int heads, row_bytes;
  int word_bytes;  // of the copies: 16, 8, 4, 2 or 1
};

// The moves of one block table, and the planes of its cache.
struct Table {
  unsigned char* pool;
  std::int64_t page_bytes;
  int page_rows, rows, first_row, planes, first_plane;
};

struct Arguments {
  const Table* tables;
  const Plane* planes;
  const Moves::Row* rows;
};

constexpr int kThreads = 128, kAhead = 8;

// A thread copies the same columns of all rows. It reads several rows before it writes the first of them, which is
// allowed since no row is read after it was written.
template <class W> __device__ void move_plane(const Table& t, const Plane& plane, const Moves::Row* rows) {
  const auto row = [&](const PageRow& r, int head) {
    return reinterpret_cast<W*>(t.pool + std::int64_t(r.page) * t.page_bytes + plane.begin +
                                (std::int64_t(head) * t.page_rows + r.row) * plane.row_bytes);
  };
  const int words = plane.row_bytes / int(sizeof(W));
  for (int c = int(threadIdx.x); c < plane.heads * words; c += kThreads) {
    const int head = c / words, column = c % words;
    for (int first = 0; first < t.rows; first += kAhead) {
      W word[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
        if (first + i < t.rows) word[i] = row(rows[first + i].from, head)[column];
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
        if (first + i < t.rows) row(rows[first + i].to, head)[column] = word[i];
    }
  }
}

// Block (table, plane of its cache).
__global__ void move_kernel(Arguments a) {
  wait_for_previous_kernels();
  let_next_kernel_start();
  const Table t = a.tables[blockIdx.x];
  if (int(blockIdx.y) >= t.planes) return;
  const Plane plane = a.planes[t.first_plane + int(blockIdx.y)];
  const Moves::Row* const rows = a.rows + t.first_row;
  switch (plane.word_bytes) {
    case 16:
      return move_plane<uint4>(t, plane, rows);
    case 8:
      return move_plane<uint2>(t, plane, rows);
    case 4:
      return move_plane<std::uint32_t>(t, plane, rows);
    case 2:
      return move_plane<std::uint16_t>(t, plane, rows);
    default:
      return move_plane<unsigned char>(t, plane, rows);
  }
}

// The widest words that divide all these sizes and addresses.
int word_bytes(std::int64_t sizes) {
  int bytes = 16;
  while (sizes % bytes != 0) bytes /= 2;
  return bytes;
}

// The arguments on the host. The tables of one cache share its planes.
struct Gathered {
  std::vector<Table> tables;
  std::vector<Plane> planes;
  std::vector<Moves::Row> rows;
  int most_planes = 0;
  struct Cache {
    std::span<const KvLayer> layers;
    int first_plane, planes;
  };
  std::vector<Cache> caches;

  explicit Gathered(std::span<const Moves> moves) {
    for (const Moves& m : moves) {
      if (m.layers.empty() || m.rows.empty()) continue;
      const Cache c = cache(m.layers);
      const KvLayer& kv = m.layers.front();
      tables.push_back({kv.pool.data<unsigned char>(), kv.pool.row_stride(), kv.page_rows, int(m.rows.size()),
                        int(rows.size()), c.planes, c.first_plane});
      rows.insert(rows.end(), m.rows.begin(), m.rows.end());
      most_planes = std::max(most_planes, c.planes);
    }
  }

 private:
  Cache cache(std::span<const KvLayer> layers) {
    for (const Cache& c : caches)
      if (c.layers.data() == layers.data() && c.layers.size() == layers.size()) return c;
    const int first = int(planes.size());
    for (const KvLayer& kv : layers) {
      const std::int64_t pages = reinterpret_cast<std::intptr_t>(kv.pool.raw()) | kv.pool.row_stride();
      for (const KvPlane& p : KvPlanes(kv))
        planes.push_back({p.begin, kv.kv_heads, int(p.bytes), word_bytes(p.begin | p.bytes | pages)});
    }
    return caches.emplace_back(layers, first, int(planes.size()) - first);
  }
};

// A copy of the values in the staging; returns their address on the device.
template <class T> const T* stage(Staging& staging, const std::vector<T>& values) {
  const auto array = staging.array({std::int64_t(values.size()), std::int64_t(sizeof(T))}, DType::u8);
  std::ranges::copy(values, reinterpret_cast<T*>(array.host.raw()));
  return reinterpret_cast<const T*>(array.device.raw());
}

}  // namespace

void CudaBackend::move(std::span<const Moves> moves) {
  enter();
  const Gathered g(moves);
  if (g.tables.empty()) return;
  moves_staging_.begin(std::int64_t(g.tables.size() * sizeof(Table) + g.planes.size() * sizeof(Plane) +
                                    g.rows.size() * sizeof(Moves::Row)) +
                       3 * Staging::kAlignment);
  const Arguments a{stage(moves_staging_, g.tables), stage(moves_staging_, g.planes), stage(moves_staging_, g.rows)};
  moves_staging_.push();
  for (const Gathered::Cache& c : g.caches)
    for (const KvLayer& kv : c.layers) written(kv);
  launch_kernel("move", stream_,
                {dim3(unsigned(g.tables.size()), unsigned(g.most_planes)), kThreads, 0, 1, dependent_launch()},
                move_kernel, a);
}

}  // namespace foretoken
