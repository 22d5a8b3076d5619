// Hydra's heads (Ankner et al. 2024, arXiv 2402.05109): head k reads a state and the k + 1 tokens after it, side by
// side, and gives the logits of the next token. The state is the target's last one; in Hydra++ a decoder layer makes it
// of all states so far. This module must not know trees.
#pragma once
#include <optional>
#include <unordered_map>
#include <vector>

#include "drafters/heads/hydra_files.h"
#include "drafters/heads/state_round.h"
#include "framework/components/round_model.h"
#include "framework/model/decoder_layer.h"

namespace foretoken {

// As a model, with Hydra++'s layer, it reads the target's states: it gives the logits of head 0, whose token is the
// row's, and its own states as features.
class HydraHead : public Model {
 public:
  // As EagleHead.
  HydraHead(Backend& backend, const HydraFiles& files, const Ends& ends, const ModelInfo& target,
            const std::string& dtype);
  const ModelInfo& info() const override { return info_; }
  Output forward(Backend& backend, const Rows& rows, std::span<const KvLayer> kv) override;
  bool replays() const override { return true; }
  bool features() const override { return true; }
  std::int64_t read_bytes(bool) const override { return layer_bytes_ + read_bytes_of(0); }

  int heads() const { return int(heads_.size()); }
  bool prefix() const { return !layers_.empty(); }
  std::int64_t read_bytes_of(int k) const;  // of head k
  // For forwards of the heads. That of Model is the layer's: two users of one would swap memories from engine to
  // engine.
  std::shared_ptr<ForwardMemory> path_memory(Backend& backend) { return path_memories_.lend(backend); }
  // states f32 [rows, width], tokens i32 [rows * (k + 1)] -> the logits of head k, f32 [rows, vocab].
  void logits(Backend& backend, int k, const Tensor& states, const Tensor& tokens, const Tensor& to) const;

 private:
  struct Head {
    Products first;               // [2 width, (k + 2) width]: what silu is taken of, and what that is added to
    std::vector<Weight> further;  // [width, width]
    Weight words;                 // [vocab, width]
  };
  void logits_of(Backend& b, const Head& head, const Tensor& states, const Tensor& embedded, const Tensor& to) const;

  ModelInfo info_;
  const Ends& ends_;
  std::vector<Head> heads_;
  ForwardMemories path_memories_;
  float epsilon_ = 0;
  std::int64_t layer_bytes_ = 0;
  std::vector<DecoderLayer> layers_;  // of Hydra++: one
  Tensor norm_;                       // f32 [width]
};

class HydraRound : public StateRound {
 public:
  HydraRound(Host& host, std::shared_ptr<HydraHead> head);
  First begin(std::span<const DraftRequest> requests, std::span<const DraftTree> trees,
              const std::function<int(const DraftRequest&)>& fed) override;
  Output run(std::span<const Segment> segments) override;
  void forget(const Sequence& sequence) override;

 private:
  Output run_prefix(std::span<const Segment> segments);

  Backend& backend_;
  std::shared_ptr<HydraHead> head_;
  std::optional<RoundModel> prefix_;                              // of Hydra++
  Tensor states_;                                                 // that it made in this round
  std::unordered_map<const DraftTree*, std::uint64_t> state_of_;  // their device addresses
};

}  // namespace foretoken
