// Collects the rows that caches of one page pool move (KV compaction), so that a step moves those of all sequences and
// caches by one call of Backend::move. This module must not know sequences, trees or why a row moves.
//
// A cache adds moves where it keeps rows that a forward wrote, and every forward is preceded by run(). In between pages
// may change hands, but nothing writes to them: so no move added meanwhile reads or writes what another one writes.
#pragma once
#include <memory>
#include <vector>

#include "kernels/backend.h"

namespace foretoken {

class PendingMoves {
 public:
  explicit PendingMoves(Backend& backend) : backend_(backend) {}

  // One more row of a block table, in the order of Moves::rows.
  void add(const Moves::Row& row) { rows_.push_back(row); }
  // The rows added since the last call are all of one block table of the cache with these layers.
  void end(const std::shared_ptr<const std::vector<KvLayer>>& layers);
  // Moves them all. After an exception they are still pending.
  void run();

 private:
  struct Table {
    std::shared_ptr<const std::vector<KvLayer>> layers;
    std::size_t end;  // of its rows
  };
  Backend& backend_;
  std::vector<Moves::Row> rows_;
  std::vector<Table> tables_;
};

}  // namespace foretoken
