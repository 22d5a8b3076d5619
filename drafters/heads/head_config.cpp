#include "drafters/heads/head_config.h"

#include <cmath>
#include <set>

#include "framework/model/random_weights.h"
#include "framework/model/shapes.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

// Numbers from a hash of their names and places, for small shapes: RandomWeights begins with a million of them.
class HashedWeights : public TensorSource {
 public:
  explicit HashedWeights(std::uint64_t seed) : seed_(seed) {}
  Tensor tensor(const std::string& name, const Shape& expected) const override {
    const Tensor all = Tensor::host(expected, DType::f32);
    std::uint64_t state = seed_;
    for (const char c : name) state = (state ^ std::uint8_t(c)) * 0x100000001b3ull;
    for (float& x : all.values<float>()) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      x = float(double(state >> 11) * 0x1p-52 - 1) *
          (expected.rank() == 2 ? 1.7f / std::sqrt(float(expected[1])) : 0.2f);
      if (name.ends_with("norm.weight")) x += 1;
    }
    return all;
  }
  std::vector<std::string> names() const override { return {}; }
  std::string where() const override { return "random weights of seed " + std::to_string(seed_); }

 private:
  std::uint64_t seed_;
};

}  // namespace

std::vector<Tap> default_taps(int layers, const std::string& where) {
  if (layers < 4)
    throw Error(where + " names no states of its target, and a target of " + std::to_string(layers) +
                " layers is too small for the usual ones; add \"eagle_aux_hidden_state_layer_ids\"");
  return {2, layers / 2, layers - 3};
}

std::vector<Tap> taps_in(const json& ids, Numbering numbering, int layers, const Fields& config, const char* key) {
  std::vector<Tap> taps;
  const int before = numbering == Numbering::outputs ? 1 : 0;
  for (const json& id : ids) {
    const std::optional<int> number = integer_in(id, -before, layers - before);
    if (!number)
      config.refuse(key, "the target has " + std::to_string(layers) + " layers; the head belongs to another target");
    taps.push_back(*number + before);
  }
  return taps;
}

ModelConfig head_layer_config(json layer, const std::string& where) {
  const std::string type = layer.value("model_type", "llama");
  layer["architectures"] = json::array({type == "qwen3" ? "Qwen3ForCausalLM" : "LlamaForCausalLM"});
  layer["model_type"] = type == "qwen3" ? type : "llama";
  for (const char* key : {"tie_word_embeddings", "bos_token_id", "eos_token_id", "layer_types", "auto_map"})
    layer.erase(key);
  if (!layer.contains("num_hidden_layers")) layer["num_hidden_layers"] = 1;
  return ModelConfig::parse(layer.dump(), where);
}

std::vector<std::int32_t> draft_ids(const HeadTensors& tensors, int draft_vocab, int vocab) {
  if (!tensors.has("d2t")) {
    if (draft_vocab == vocab) return {};
    throw Error(tensors.where() + " has a head of " + std::to_string(draft_vocab) +
                " tokens, and no tensor 'd2t' that says which of the target's " + std::to_string(vocab) +
                " they are; it belongs to another target, or is incomplete");
  }
  const Tensor offsets = tensors.tensor("d2t", {draft_vocab});
  if (offsets.dtype() != DType::i64)
    throw Error(tensors.where() + ": the tensor 'd2t' must be I64; the file is no published head");
  std::vector<std::int32_t> ids;
  std::set<std::int64_t> seen;
  for (std::int64_t i = 0; i < draft_vocab; ++i) {
    const std::int64_t id = i + offsets.data<std::int64_t>()[i];
    const bool lacks = id < 0 || id >= vocab;
    if (lacks || !seen.insert(id).second)
      throw Error(tensors.where() + ": 'd2t' maps the draft's token " + std::to_string(i) + " to " +
                  std::to_string(id) + ", which " + (lacks ? "the target lacks" : "another one has already") +
                  "; the head belongs to another target, or is damaged");
    ids.push_back(std::int32_t(id));
  }
  return ids;
}

ModelConfig random_head_layer(const std::string& shape, const ModelInfo& target) {
  if (shape != "small") {
    ModelConfig layer = published_shape(shape);
    layer.layers = 1, layer.vocab = target.vocab;
    return layer;
  }
  ModelConfig layer;
  layer.vocab = target.vocab, layer.width = target.width, layer.layers = 1, layer.ffn = target.width;
  layer.heads = layer.kv_heads = 1, layer.positions = target.positions;
  layer.head_size = has_scales(target.kv.layers.front().dtype) ? kCodedHead : kCodedHead / 2;
  return layer;
}

std::shared_ptr<const TensorSource> random_head_weights(const std::string& shape, std::uint64_t seed) {
  if (shape == "small") return std::make_shared<HashedWeights>(seed);
  return std::make_shared<RandomWeights>(seed);
}

}  // namespace foretoken
