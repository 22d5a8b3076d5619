// A model with its cache: the engine's target, and the model of every model drafter. It turns segments (tokens that the
// cache lacks, then nodes of a draft tree) into the rows of one forward. This module must not know drafters, verifiers
// or whether its model is a target.
#pragma once
#include <algorithm>
#include <memory>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "framework/cache/kv_cache.h"
#include "framework/cache/layout_builder.h"
#include "framework/cache/read_sequences.h"
#include "framework/decode/draft_tree.h"
#include "framework/model/forward_books.h"
#include "framework/model/model.h"
#include "kernels/staging.h"

namespace foretoken {

// The rows of one sequence in one forward: `chain` tokens that follow those in the cache, then the nodes [begin, nodes)
// of `tree`. With a tree the chain must reach up to the root, which is the sequence's last token.
struct Segment {
  const Sequence* sequence = nullptr;
  int chain = 0;
  const DraftTree* tree = nullptr;
  int begin = 0;  // > 0: the nodes before were fed by an earlier forward of this round
  // Device addresses of the rows' features: RowInputs::pieces for each row. The same form for all segments of a
  // forward.
  std::span<const std::uint64_t> inputs = {};
  // Nodes from this one on are never kept: what they are computed from is not what the sequence will have there.
  int approximate = 1 << 30;
  // The nodes attend to one another in both directions, not to ancestors only, and none of them is kept (block
  // drafters). The tree must be a chain, fed from its root on, in a model without windows.
  bool mutual = false;
};

// Hidden states of one sequence: those of each position lie in the pages of the cache of the model that computed them.
class HiddenStates {
 public:
  HiddenStates() = default;
  // `layers`: where the state of each of `taps` is.
  HiddenStates(std::span<const Tap> taps, std::span<const KvLayer> layers, std::span<const PageId> table, int rows)
      : taps_(taps), layers_(layers), table_(table), rows_(rows) {}
  int rows() const { return rows_; }  // positions 0 .. rows() - 1 have states
  // The device address of the first (0) or second (1) half of the numbers of a state, for Backend::recall. A state that
  // is not kept is an Error.
  std::uint64_t address(int position, Tap tap, int half) const;
  // The states of a position at these points as inputs of a row of that form: both halves of each are appended.
  void append(int position, std::span<const Tap> taps, std::vector<std::uint64_t>& addresses) const;
  RowInputs form(std::span<const Tap> taps) const { return {2 * int(taps.size()), half(), dtype()}; }
  // Numbers in a half of a state, and their type.
  std::int64_t half() const { return layers_.empty() ? 0 : layers_.front().head_size; }
  DType dtype() const { return layers_.empty() ? DType::f32 : layers_.front().dtype; }

 private:
  std::span<const Tap> taps_;
  std::span<const KvLayer> layers_;
  std::span<const PageId> table_;
  int rows_ = 0;
};

class CachedModel {
 public:
  // `taps`: states that are kept beside keys and values (with_taps; an Error where the model does not have them).
  // `bounds`: views may select pages by the bounds of their keys (PageChoice::selects).
  CachedModel(Backend& backend, std::shared_ptr<Model> model, PagePool& pool, bool reuse_prefixes = true,
              std::vector<Tap> taps = {}, bool bounds = false);
  // With a view of another model's cache, which must outlive it, for a part of that model (part_of).
  CachedModel(Backend& backend, std::shared_ptr<Model> part, KvCache& viewed, PageChoice chosen = {});

  const ModelInfo& info() const { return model_->info(); }
  const std::shared_ptr<Model>& model() const { return model_; }
  // The sequence's tokens as the model reads them: of another vocabulary they are other ids, and more or fewer. All
  // that is said of tokens and rows below is of these.
  int length(const Sequence& sequence) { return read_.of(sequence).length(); }
  // The sequence's tokens that the cache lacks, at least one (the root). Resolves pending rows: KvCache::settle.
  std::span<const Token> unseen(const Sequence& sequence);
  // An upper bound of their number: for a sequence that the cache does not know its length, since no prefix is looked
  // up.
  int most_unseen(const Sequence& sequence);
  // As KvCache::reserve; to be called after unseen(), which gives back the pages of rows that were reserved and not
  // fed, and before run(), in every round. An Error for a sequence that unseen() was not called for.
  bool reserve(const Sequence& sequence, int rows);
  // Whether the context has room for a round: for at least so many rows of a tree, its root among them.
  bool fits(const Sequence& sequence) { return length(sequence) - 1 + least_rows_ <= info().positions; }
  void set_least_rows(int rows) { least_rows_ = rows; }
  // The pool had no pages for the last reserve() of this sequence.
  bool lacked_pages(const Sequence& sequence) const { return lacking_.contains(sequence.id); }
  // Before a round that may reserve none.
  void forget_lack(const Sequence& sequence) { lacking_.erase(sequence.id); }
  // One forward, for which rows are reserved: an Error where they are not, before anything is fed. Returns the logits
  // of the fed tree nodes, segment after segment: f32 [sum of (nodes - begin), vocab], and their features where the
  // model has some. Their memory is not reused while a Tensor refers to it. `inputs`: the form of Segment::inputs.
  Output run(std::span<const Segment> segments, const RowInputs& inputs = {});
  // One forward of `chain` tokens of each segment, without trees: f32 [segments, pages], on the device, how much of the
  // softmax the rows put on each page of their sequence, over all layers and heads (Backend::attention_mass).
  Tensor mass(std::span<const Segment> segments);
  void forget(const Sequence& sequence);

  // The states of the confirmed rows of a sequence that settle() has been called for. Valid until the next settle().
  HiddenStates hidden(const Sequence& sequence) const;

  KvCache& cache() { return cache_; }
  const KvCache& cache() const { return cache_; }
  std::span<const Tap> taps() const { return taps_; }
  const std::shared_ptr<ForwardBooks>& books() const { return books_; }  // of its forwards

 private:
  // The inputs of a forward, on the device.
  struct Inputs {
    Rows rows;
    Tensor known, at;  // i32, u64 [rows]: see Backend::pick
    Tensor features;   // u64 [rows, pieces]: see Backend::recall; absent: there are none
    LayoutBuilder::Extent extent;
  };

  void bound_pages(std::span<const Segment> segments);
  void feed(std::span<const Segment> segments);
  Inputs stage();
  Output forward(Inputs inputs);
  int first_position(int position) const { return window_ > 0 ? std::max(0, position + 1 - window_) : 0; }
  std::shared_ptr<ForwardBooks> new_books() const;

  Backend& backend_;
  std::shared_ptr<Model> model_;
  std::vector<Tap> taps_;
  ReadSequences read_;
  KvCache cache_;
  std::unordered_set<SequenceId> lacking_;
  int least_rows_ = 1;
  int window_;  // positions to which a row attends, itself among them, in layers that have one; 0: none has
  const PagePool& pool_;
  std::shared_ptr<ForwardBooks> books_;
  std::vector<std::int64_t> layout_;  // of a page
  LayoutBuilder builder_;
  int ids_;                                 // of the tokens that the model reads
  std::vector<const KvCache::Held*> held_;  // of the segments of the current forward
  std::vector<int> firsts_;                 // their first pending rows
  RowInputs inputs_;                        // of the current forward
  bool masses_ = false;                     // it computes Rows::mass
};

}  // namespace foretoken
