#include "drafters/heads/eagle_files.h"

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

}  // namespace

HeadTensors eagle_tensors(const std::filesystem::path& directory) { return {directory, known_as}; }

EagleForm eagle_form(const std::filesystem::path& directory, int layers) {
  const std::filesystem::path file = directory / "config.json";
  const json all = read_json(file);
  const Fields config(all, file.string());
  const HeadTensors tensors = eagle_tensors(directory);
  if (!tensors.has("fc.weight") && !tensors.has("layers.0.hidden_norm.weight"))
    throw Error(directory.string() +
                " has neither a tensor fc.weight nor midlayer.hidden_norm.weight, so it is no head of the EAGLE "
                "family; choose the drafter of its own kind");
  const json layer = config.has("transformer_layer_config") ? config.object("transformer_layer_config").all() : all;
  EagleForm form;
  form.layer = layer_config(layer, file.string());
  form.target_width = config.integer_or("target_hidden_size", 1, 1 << 24, form.layer.width);
  form.own_embedding = tensors.has("embed_tokens.weight");
  form.fc_bias = tensors.has("fc.bias");
  if (!tensors.has("layers.0.hidden_norm.weight")) {
    form.generation = 1, form.taps = {kNormed};
    return form;
  }
  read_states(config, tensors, layers, form);
  if (tensors.has("lm_head.weight")) form.draft_vocab = int(tensors.shape("lm_head.weight")[0]);
  return form;
}

}  // namespace foretoken
