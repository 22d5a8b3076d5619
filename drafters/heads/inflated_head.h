// A trained draft head for a target that is inflated (framework/model/inflation.h): it is inflated with its target, to
// the decoder layer of a published model of the target's width, and drafts what it drafts for the small target. The
// numbers in its files, of layers and of tokens, are of the small target. This module must not know what a head
// computes.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/model/config.h"
#include "framework/model/model.h"
#include "framework/model/tensor_source.h"

namespace foretoken {

// How an option names a head: a path or {"directory": PATH}; {"directory": PATH, "inflate": SHAPE, "layers": 0,
// "draft_vocab": 0}, of which 0 means as many as the head has itself, or {"random": SHAPE, ...}.
bool is_random_head(const nlohmann::json& head);
std::string directory_of_head(const nlohmann::json& head);

// The target for which a head was trained: the small model of an inflated one. A head that is inflated beside a target
// that is not, or the other way round, is an Error.
ModelInfo trained_target(const nlohmann::json& head, const ModelInfo& target);

// What the files of every kind of heads say.
struct HeadFiles {
  std::string name;  // for messages
  // Under the names of the kind's own, which for inflation are "layers.0.*", "fc.*", "embed_tokens.weight",
  // "lm_head.weight", "markov_head.*" and those that end in "norm.weight" or "norm.N.weight".
  std::function<std::shared_ptr<const TensorSource>()> tensors = {};
  // The target's tokens of a head of its own, [draft_vocab]; empty: they are the same.
  std::vector<std::int32_t> ids = {};
  int drawn = 0;                                  // rows of its matrix of logits that may be drawn, the first; 0: all
  std::function<void()> expect_all_read = [] {};  // to be called when all is loaded: HeadTensors::expect_all_read
};

// What its form says besides, with the small target's numbers.
struct HeadForm {
  ModelConfig& layer;
  int* target_width = nullptr;
  int* draft_vocab = nullptr;
};

// Where `head` says so, makes of the files of the trained head those of the inflated one. `wide`: as of
// InflatedWeights. A shape that cannot hold it, or is of another width than the target, is an Error.
void inflate_head(const nlohmann::json& head, const ModelInfo& target, bool wide, HeadFiles& files, HeadForm form);

}  // namespace foretoken
