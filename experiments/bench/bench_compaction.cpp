#include "experiments/bench/bench_compaction.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "experiments/bench/bench.h"
#include "kernels/error.h"
#include "kernels/time_of.h"

namespace foretoken {
namespace {

constexpr int kMoved = kPageRows / 2;  // rows that move within a page, from its second half to its first

// The rows of every block table that call number `turn` moves, in the order of the tables.
std::vector<std::vector<Moves::Row>> rows_of(const CompactionLoad& load, const std::vector<std::int32_t>& pages,
                                             int touched, int turn) {
  const int width = int(pages.size()) / load.batch;
  std::vector<std::vector<Moves::Row>> rows(std::size_t(load.batch));
  for (int s = 0; s < load.batch; ++s)
    for (int r = 0; r < load.rows; ++r) {
      const std::int32_t page = pages[std::size_t(s * width + (turn * touched + r / kMoved) % width)];
      rows[std::size_t(s)].push_back({{page, kMoved + r % kMoved}, {page, r % kMoved}});
    }
  return rows;
}

}  // namespace

double CompactionLoad::bytes() const { return 2.0 * batch * rows * double(cache.bytes_per_row()); }

double compaction_seconds(Backend& b, const CompactionLoad& load, int repeats) {
  constexpr int kWarmUp = 3;
  const int width = load.context / kPageRows, touched = (load.rows + kMoved - 1) / kMoved;  // pages of a block table
  if (touched > width)
    throw Error("compaction alone: " + std::to_string(load.rows) + " rows do not move within a context of " +
                std::to_string(load.context) + "; give at least " + std::to_string(touched * kPageRows));
  const Tensor pool = b.allocate({std::int64_t(width) * load.batch, load.cache.page_bytes(kPageRows)}, DType::u8);
  const std::vector<KvLayer> layers = load.cache.in_pages(pool, kPageRows);
  std::vector<std::int32_t> pages(std::size_t(width) * std::size_t(load.batch));
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), std::mt19937(1));
  // Made beforehand: only the call is timed.
  std::vector<std::vector<std::vector<Moves::Row>>> rows;
  for (int i = 0; i < kWarmUp + repeats; ++i) rows.push_back(rows_of(load, pages, touched, i));
  std::vector<std::vector<Moves>> moves;
  for (const auto& of_call : rows) {
    moves.emplace_back();
    for (const auto& of_table : of_call) moves.back().push_back({layers, of_table});
  }
  auto next = moves.cbegin();
  for (int i = 0; i < kWarmUp; ++i) b.move(*next++);
  return time_of(b, repeats, [&] { b.move(*next++); });
}

}  // namespace foretoken
