#include "drafters/heads/eagle_files.h"

#include "drafters/heads/head_config.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;

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
  form.layer = head_layer_config(layer, file.string());
  form.target_width = config.integer_or("target_hidden_size", 1, 1 << 24, form.layer.width);
  form.own_embedding = tensors.has("embed_tokens.weight");
  form.fc_bias = tensors.has("fc.bias");
  if (tensors.has("layers.0.hidden_norm.weight"))
    read_states(config, tensors, layers, form);
  else
    form.generation = 1, form.taps = {kNormed};
  return form;
}

EagleFiles random_eagle(const Fields& head, int generation, const ModelInfo& target) {
  const int layers = int(target.kv.layers.size());
  const auto seed = std::uint64_t(head.integer_or("seed", 0, 1 << 30, 1));
  EagleFiles files;
  files.name = "random " + head.string("random") + " head seed " + std::to_string(seed);
  EagleForm& form = files.form;
  form.generation = generation, form.layer = random_head_layer(head.string("random"), target);
  form.target_width = target.width;
  if (generation == 1)
    form.taps = {kNormed};
  else
    form.taps = layers < 4 ? std::vector<Tap>{0, layers} : default_taps(layers, head.where());
  files.tensors = [seed, shape = head.string("random")] { return random_head_weights(shape, seed); };
  if (generation == 1) return files;
  const int own = head.integer_or("draft_vocab", 0, target.vocab, 0);
  form.draft_vocab = own > 0 ? own : target.vocab;
  for (int i = 0; own > 0 && i < own; ++i) files.ids.push_back(std::int32_t(std::int64_t(i) * target.vocab / own));
  return files;
}

EagleFiles trained_eagle(const std::string& directory, int generation, const ModelInfo& target) {
  const auto tensors = std::make_shared<HeadTensors>(directory, known_as);
  EagleFiles files;
  files.name = directory, files.form = form_in(directory, *tensors, int(target.kv.layers.size()));
  files.tensors = [tensors] { return tensors; };
  const bool first = files.form.generation == 1;
  if (files.form.generation != generation)
    throw Error(directory + " has " + (first ? "an EAGLE-1 or 2" : "an EAGLE-3") + " head; use the drafter '" +
                (first ? "eagle" : "eagle3") + "'");
  if (tensors->has("lm_head.weight") && !first) {
    files.form.draft_vocab = int(tensors->shape("lm_head.weight")[0]);
    files.ids = draft_ids(*tensors, files.form.draft_vocab, target.vocab);
  }
  files.expect_all_read = [tensors, first] { tensors->expect_all_read(first ? "an EAGLE-1 head" : "an EAGLE-3 head"); };
  return files;
}

}  // namespace

EagleFiles open_eagle(const json& head, int generation, const ModelInfo& target, bool wide) {
  if (is_random_head(head)) return random_eagle(Fields(head, "the head " + head.dump()), generation, target);
  EagleFiles files = trained_eagle(directory_of_head(head), generation, trained_target(head, target));
  EagleForm& f = files.form;
  inflate_head(head, target, wide, files, {f.layer, &f.target_width, &f.draft_vocab});
  return files;
}

}  // namespace foretoken
