// Medusa's heads (Cai et al. 2024, arXiv 2401.10774): head k makes of the target's last state the logits of the token k
// + 1 places after the one that the target's own head predicts, by residual layers x + silu(W x + b) and a matrix of
// its own. None knows what another one's token is. This module must not know trees.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "drafters/heads/state_round.h"
#include "framework/model/tensor_source.h"
#include "framework/model/weight_loader.h"

namespace foretoken {

struct MedusaFiles {
  std::string name;  // for messages
  int heads = 0;
  int layers = 1;         // residual layers of a head
  bool own_heads = true;  // else the matrices are the target's
  // "{k}.{j}.linear.weight" and ".bias" of layer j of head k, "{k}.{layers}.weight" of its own matrix.
  std::function<std::shared_ptr<const TensorSource>()> tensors = {};
};

// `head`: the directory of Medusa-1's heads, or of a whole model that has some (Medusa-2), or {"random": SHAPE, "seed":
// 1, "heads": 4, "layers": 1}, as of open_eagle, of which 0 means the default. None there is an Error.
MedusaFiles open_medusa(const nlohmann::json& head, const ModelInfo& target);

class MedusaHeads {
 public:
  // `ends`, `target`: the target's, which must outlive this object. `dtype`: of the
  // weights, as of TransformerOptions. Heads for another target are an Error.
  MedusaHeads(Backend& backend, const MedusaFiles& files, const Ends& ends, const ModelInfo& target,
              const std::string& dtype);
  int count() const { return int(further_.size()); }
  // x f32 [rows, width] -> the logits of the first `count` heads side by side, f32 [rows, count * vocab].
  void logits(Backend& backend, const Tensor& x, int count, const Tensor& to) const;
  std::shared_ptr<ForwardMemory> memory(Backend& backend) { return memories_.lend(backend); }
  std::uint64_t serial() const { return serial_.number(); }
  std::int64_t bytes() const { return bytes_; }  // of its weights
  std::int64_t read_bytes(int count) const;      // that logits() reads, the target's head among them

 private:
  Products first_;                            // [heads * width, width]
  std::vector<std::vector<Weight>> further_;  // [width, width] of each head's other layers
  const Ends& ends_;
  std::vector<Weight> own_;  // [vocab, width] of each head; none: the target's
  std::int64_t bytes_ = 0;
  Serial serial_;
  ForwardMemories memories_;
};

class MedusaRound : public StateRound {
 public:
  MedusaRound(Host& host, std::shared_ptr<MedusaHeads> heads);
  First begin(std::span<const DraftRequest> requests, std::span<const DraftTree> trees,
              const std::function<int(const DraftRequest&)>& fed) override;
  bool marginals() const override { return true; }
  Output run_levels(std::span<const Segment> segments, int levels) override;
  // All nodes of a level have the same row, each a copy of its own, since it is adjusted for the path to the node.
  Output run(std::span<const Segment> segments) override;

 private:
  Backend& backend_;
  std::shared_ptr<MedusaHeads> heads_;
  Staging staging_;
  Tensor levels_of_;                                 // f32 [trees * levels, vocab] of this round
  std::unordered_map<const DraftTree*, int> trees_;  // and which of its trees one is
};

}  // namespace foretoken
