// What a directory with a head that drafts a block in one forward holds: DFlash (arXiv 2602.06036) in the layouts of
// z-lab, of DeepSpec and of speculators, and DSpark (2607.05147) in the latter two. It settles in which numbering a
// file counts the target's layers, and which slot of a block predicts which token. This module must not know devices.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "drafters/heads/inflated_head.h"

namespace foretoken {

struct BlockForm {
  ModelConfig layer;      // of its decoder layers; its vocabulary is the target's
  int target_width = 0;   // of the states that it reads
  std::vector<Tap> taps;  // in the order of its columns
  int rows = 0;           // of a block, the anchor among them
  Token mask = 0;         // the token of all of them but the anchor
  int first = 1;          // the slot that predicts the token after the anchor: 0, or 1, whose own position that is
  int draft_vocab = 0;    // rows of a head of its own; 0: it uses the target's
  bool own_embedding = false;
  int markov_rank = 0;  // of the correction by the token before; 0: there is none
  // Whether its rows attend to one another in both directions. Those of a window never do.
  bool mutual() const { return layer.window == 0; }
};

// "fc.weight", "hidden_norm.weight", "layers.0.self_attn.q_proj.weight", "norm.weight", "embed_tokens.weight",
// "lm_head.weight", "markov_head.markov_w1.weight", "markov_head.markov_w2.weight".
struct BlockFiles : HeadFiles {
  BlockForm form = {};
};

// The keys of a random head besides "random" and "seed", with usual values.
std::vector<std::pair<std::string, int>> random_block_keys(bool corrects);

// `head`: a directory, or {"random": SHAPE, "seed": 1, "block": 16, "layers": 5, "mask": the last token,
// "markov_rank": 256} for weights that mean nothing, whose decoder layers have a published shape, or are small for
// "small", or one that is inflated (inflated_head.h). `corrects`: whether it must be a DSpark head, with a correction,
// or must have none. What is not known is an Error. `wide`: as of inflate_head.
BlockFiles open_block(const nlohmann::json& head, bool corrects, const ModelInfo& target, bool wide = false);

}  // namespace foretoken
