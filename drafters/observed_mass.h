// How much attention tokens of a sequence give to the pages of the target's cache: the target reads these tokens again,
// on a view of its own cache, so that nothing is kept of its forwards. This module must not know how pages are chosen.
#pragma once
#include <memory>
#include <span>
#include <unordered_set>
#include <vector>

#include "framework/components/host.h"

namespace foretoken {

class ObservedMass {
 public:
  // Tokens [begin, end) of a sequence, all of them before its last one; from the first row of a page on that has
  // `begin`, so some more.
  struct Span {
    const Sequence* sequence;
    int begin, end;
  };

  // Of the target, all layers and heads together. Needs::views_target must state it.
  explicit ObservedMass(Host& host);
  int page_rows() const { return model_->cache().page_rows(); }
  // The rows of the target's cache that hold tokens of the sequence.
  int confirmed(const Sequence& sequence);
  // For each span the mass on the pages [0, pages of `end`); empty where the pool has no pages for its rows, or for
  // those of a span of the same sequence before it. One wait for all of them, and a forward for the k-th spans of all
  // sequences.
  std::vector<std::vector<float>> observe(std::span<const Span> spans);
  void forget(const Sequence& sequence) { model_->forget(sequence); }

 private:
  // Queues a forward of the spans of these numbers, and the copy to the host of their masses; drops those of sequences
  // that lack pages.
  Tensor begin(std::span<const Span> spans, std::vector<std::size_t>& forward, std::unordered_set<SequenceId>& lacking);

  Backend& backend_;
  std::shared_ptr<CachedModel> model_;
};

}  // namespace foretoken
