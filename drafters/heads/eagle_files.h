// What a directory with a draft head of the EAGLE family holds: EAGLE-1 and 2 (Li et al. 2024, arXiv 2401.15077,
// 2406.16858), EAGLE-3 (2503.01840) and 3.1, in the layouts of their authors, of SGLang and SpecForge, and of
// speculators. It settles in which numbering a file counts the target's layers. This module must not know devices.
#pragma once
#include <vector>

#include <nlohmann/json.hpp>

#include "drafters/heads/inflated_head.h"

namespace foretoken {

struct EagleForm {
  int generation = 3;     // 1: one state of the target, EAGLE-1 and 2; 3: several, EAGLE-3 and 3.1
  ModelConfig layer;      // of its decoder layers; its vocabulary is the target's
  int target_width = 0;   // of the states that it reads
  std::vector<Tap> taps;  // in the order of its columns
  int draft_vocab = 0;    // rows of a head of its own; 0: it uses the target's
  bool own_embedding = false;
  bool fc_bias = false;
  enum class Norm { none, each, all };  // of the states before fc: each by its own, all in one
  Norm state_norm = Norm::none;
  bool norm_before_residual = false;  // what is added to the attention is the normed state
  // Whether it makes one feature of several states; else it reads the one state as it is.
  bool combines() const { return taps.size() > 1; }
  bool norm_output = false;  // what it is fed in the next step is behind its last norm
};

// By the names of the authors' EAGLE-3: "fc.weight", "layers.0.self_attn.q_proj.weight", "norm.weight",
// "lm_head.weight".
struct EagleFiles : HeadFiles {
  EagleForm form = {};
};

// `head`: a directory, or {"random": SHAPE, "seed": 1, "draft_vocab": 0} for weights that mean nothing, whose decoder
// layer has a published shape, or is small for "small", or one that is inflated (inflated_head.h). What is not known,
// and a head of another generation, is an Error. `wide`: as of inflate_head.
EagleFiles open_eagle(const nlohmann::json& head, int generation, const ModelInfo& target, bool wide = false);

}  // namespace foretoken
