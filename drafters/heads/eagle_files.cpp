#include "drafters/heads/eagle_files.h"

#include <cmath>
#include <set>

#include "drafters/heads/head_tensors.h"
#include "framework/model/random_weights.h"
#include "framework/model/shapes.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;

// How a file numbers the states of its target: i names the state after i layers, or the output of layer i.
enum class Numbering { states, outputs };

// The default of all layouts: low, middle and high.
std::vector<Tap> default_taps(int layers, const std::string& where) {
  if (layers < 4)
    throw Error(where + " names no states of its target, and a target of " + std::to_string(layers) +
                " layers is too small for the usual ones; add \"eagle_aux_hidden_state_layer_ids\"");
  return {2, layers / 2, layers - 3};
}

std::vector<Tap> taps_in(const json& ids, Numbering numbering, int layers, const Fields& config, const char* key) {
  std::vector<Tap> taps;
  for (const json& id : ids) {
    const int tap = id.is_number_integer() ? id.get<int>() + (numbering == Numbering::outputs) : -1;
    if (tap < 0 || tap > layers)
      config.refuse(key, "the target has " + std::to_string(layers) + " layers; the head belongs to another target");
    taps.push_back(tap);
  }
  return taps;
}

// The configuration of the decoder layer, as that of a whole model of a known family.
ModelConfig layer_config(json layer, const std::string& where) {
  const std::string type = layer.value("model_type", "llama");
  layer["architectures"] = json::array({type == "qwen3" ? "Qwen3ForCausalLM" : "LlamaForCausalLM"});
  layer["model_type"] = type == "qwen3" ? type : "llama";
  for (const char* key : {"tie_word_embeddings", "bos_token_id", "eos_token_id", "layer_types", "auto_map"})
    layer.erase(key);
  if (!layer.contains("num_hidden_layers")) layer["num_hidden_layers"] = 1;
  return ModelConfig::parse(layer.dump(), where);
}

void read_states(const Fields& config, const HeadTensors& tensors, int layers, EagleForm& form) {
  constexpr const char* kIds = "eagle_aux_hidden_state_layer_ids";
  const bool nested = config.has("eagle_config"), speculators = config.has("speculators_model_type");
  const Fields of = nested ? config.object("eagle_config") : config;
  if (!tensors.has("fc.weight")) {  // "use_aux_hidden_state": false
    form.taps = {kNormed};
  } else if (const json* ids = of.find(kIds); ids && ids->is_array() && !ids->empty()) {
    // SGLang and SpecForge count outputs of layers, speculators states.
    form.taps = taps_in(*ids, speculators ? Numbering::states : Numbering::outputs, layers, of, kIds);
  } else {
    form.taps = default_taps(layers, config.where());
  }
  if (of.boolean_or("norm_before_fc", config.boolean_or("norm_before_fc", false)) || tensors.has("input_norm.weight"))
    form.state_norm = EagleForm::Norm::all;
  if (tensors.has("fc_norm.0.weight")) form.state_norm = EagleForm::Norm::each;
  form.norm_before_residual = config.boolean_or("norm_before_residual", false);
  // Without norms of each state the key once meant that the head's input is normed, which it always is.
  form.norm_output = config.boolean_or("norm_output", false) && form.state_norm == EagleForm::Norm::each;
}

std::string known_as(std::string name) {
  for (const std::string prefix : {"model.", "midlayer."})
    if (name.starts_with(prefix)) name = (prefix == "midlayer." ? "layers.0." : "") + name.substr(prefix.size());
  if (name == "t2d" || name.ends_with("rotary_emb.inv_freq")) return "";  // which of the target's tokens d2t names
  return name;
}

EagleForm form_in(const std::filesystem::path& directory, const HeadTensors& tensors, int layers) {
  const std::filesystem::path file = directory / "config.json";
  const json all = read_json(file);
  const Fields config(all, file.string());
  if (!tensors.has("fc.weight") && !tensors.has("layers.0.hidden_norm.weight"))
    throw Error(
        directory.string() +
        " has neither a tensor fc.weight nor midlayer.hidden_norm.weight, so it is no head of the EAGLE family; "
        "choose the drafter of its own kind");
  const json layer = config.has("transformer_layer_config") ? config.object("transformer_layer_config").all() : all;
  EagleForm form;
  form.layer = layer_config(layer, file.string());
  form.target_width = config.integer_or("target_hidden_size", 1, 1 << 24, form.layer.width);
  form.own_embedding = tensors.has("embed_tokens.weight");
  form.fc_bias = tensors.has("fc.bias");
  if (tensors.has("layers.0.hidden_norm.weight"))
    read_states(config, tensors, layers, form);
  else
    form.generation = 1, form.taps = {kNormed};
  return form;
}

// Offsets from the draft's tokens to the target's.
std::vector<std::int32_t> ids_in(const HeadTensors& tensors, int draft_vocab, int vocab) {
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

ModelConfig random_layer(const std::string& shape, const ModelInfo& target) {
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

EagleFiles random_eagle(const Fields& head, int generation, const ModelInfo& target) {
  const int layers = int(target.kv.layers.size());
  const auto seed = std::uint64_t(head.integer_or("seed", 0, 1 << 30, 1));
  EagleFiles files{.name = "random " + head.string("random") + " head seed " + std::to_string(seed)};
  EagleForm& form = files.form;
  form.generation = generation, form.layer = random_layer(head.string("random"), target);
  form.target_width = target.width;
  if (generation == 1)
    form.taps = {kNormed};
  else
    form.taps = layers < 4 ? std::vector<Tap>{0, layers} : default_taps(layers, head.where());
  files.tensors = [seed, small = head.string("random") == "small"]() -> std::shared_ptr<const TensorSource> {
    if (small) return std::make_shared<HashedWeights>(seed);
    return std::make_shared<RandomWeights>(seed);
  };
  if (generation == 1) return files;
  const int own = head.integer_or("draft_vocab", 0, target.vocab, 0);
  form.draft_vocab = own > 0 ? own : target.vocab;
  for (int i = 0; own > 0 && i < own; ++i) files.ids.push_back(std::int32_t(std::int64_t(i) * target.vocab / own));
  return files;
}

}  // namespace

EagleFiles open_eagle(const json& head, int generation, const ModelInfo& target) {
  if (head.is_object()) return random_eagle(Fields(head, "the head " + head.dump()), generation, target);
  const std::string directory = head.get<std::string>();
  const auto tensors = std::make_shared<HeadTensors>(directory, known_as);
  EagleFiles files{.name = directory, .form = form_in(directory, *tensors, int(target.kv.layers.size()))};
  files.tensors = [tensors] { return tensors; };
  const bool first = files.form.generation == 1;
  if (files.form.generation != generation)
    throw Error(directory + " has " + (first ? "an EAGLE-1 or 2" : "an EAGLE-3") + " head; use the drafter '" +
                (first ? "eagle" : "eagle3") + "'");
  if (tensors->has("lm_head.weight") && !first) {
    files.form.draft_vocab = int(tensors->shape("lm_head.weight")[0]);
    files.ids = ids_in(*tensors, files.form.draft_vocab, target.vocab);
  }
  files.expect_all_read = [tensors, first] { tensors->expect_all_read(first ? "an EAGLE-1 head" : "an EAGLE-3 head"); };
  return files;
}

}  // namespace foretoken
