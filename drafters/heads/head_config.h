// What the readers of published draft heads have in common: which states of the target a list of layers names, the
// configuration of a head's decoder layers, a reduced vocabulary, and heads of random weights. This module must not
// know what a head computes.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "drafters/heads/head_tensors.h"
#include "framework/model/config.h"
#include "framework/model/model.h"
#include "framework/text/json_file.h"

namespace foretoken {

// How a file numbers the states of its target: i names the state after i layers, or the output of layer i.
enum class Numbering { states, outputs };

// The state that each of the numbers in `ids`, the value of `key`, names. One that a target of `layers` layers lacks is
// an Error.
std::vector<Tap> taps_in(const nlohmann::json& ids, Numbering numbering, int layers, const Fields& config,
                         const char* key);
// The default of all layouts: low, middle and high. `where`: for the Error of a target that is too small.
std::vector<Tap> default_taps(int layers, const std::string& where);

// The configuration of the decoder layer, as that of a whole model of a known family.
ModelConfig head_layer_config(nlohmann::json layer, const std::string& where);

// The target's token of each of a head's own, by the offsets of the tensor 'd2t'; empty where the vocabularies are the
// same.
std::vector<std::int32_t> draft_ids(const HeadTensors& tensors, int draft_vocab, int vocab);

// One decoder layer of a published shape, or a tiny one of the target's width for "small"; and weights for it.
ModelConfig random_head_layer(const std::string& shape, const ModelInfo& target);
std::shared_ptr<const TensorSource> random_head_weights(const std::string& shape, std::uint64_t seed);

}  // namespace foretoken
