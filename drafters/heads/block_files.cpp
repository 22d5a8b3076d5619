#include "drafters/heads/block_files.h"

#include <algorithm>
#include <cmath>

#include "drafters/heads/head_config.h"
#include "framework/decode/draft_tree.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;

constexpr int kMostRows = 1 + kMaxPath;
constexpr const char *kW1 = "markov_head.markov_w1.weight", *kW2 = "markov_head.markov_w2.weight";

std::string block_known_as(std::string name) {
  if (name.starts_with("model.")) name = name.substr(std::string("model.").size());
  if (name.starts_with("logit_head.")) name = "markov_head." + name.substr(std::string("logit_head.").size());
  // Which of the target's tokens d2t names, and estimates of what will be accepted, which nothing reads.
  const bool unused = name == "t2d" || name.ends_with("rotary_emb.inv_freq") || name.starts_with("confidence_head.");
  return unused ? "" : name;
}

// A config of one of three publishers: all keys at the top (DeepSpec), some in "dflash_config" (z-lab, SpecForge), or
// the layers' in "transformer_layer_config" (speculators).
struct BlockConfig {
  json all;
  Fields config, own, layer;  // of the file, of the block, of its decoder layers

  explicit BlockConfig(const std::string& file)
      : all(read_json(file)),
        config(all, file),
        own(config.has("dflash_config") ? config.object("dflash_config") : config),
        layer(config.has("transformer_layer_config") ? config.object("transformer_layer_config") : config) {}
  BlockConfig(const BlockConfig&) = delete;

  bool speculators() const { return config.has("speculators_model_type"); }
  int layers() const { return layer.integer("num_hidden_layers", 1, 256); }
  // Of a key that stands in one of the two places.
  int integer(const char* key, int least, int most) const {
    return (own.has(key) ? own : config).integer(key, least, most);
  }
};

// z-lab's and DeepSpec's default: outputs of layers that are spread evenly, rounded as Python does.
std::vector<Tap> spread_taps(int layers, int count) {
  if (count == 1) return {layers / 2 + 1};
  std::vector<Tap> taps;
  for (int i = 0; i < count; ++i) taps.push_back(1 + int(std::nearbyint(1 + double(i) * (layers - 4) / (count - 1))));
  return taps;
}

std::vector<Tap> block_taps(const BlockConfig& c, int layers) {
  if (c.speculators()) {
    constexpr const char* kIds = "aux_hidden_state_layer_ids";
    return c.config.has(kIds) ? taps_in(c.config.array(kIds), Numbering::states, layers, c.config, kIds)
                              : default_taps(layers, c.config.where());
  }
  constexpr const char* kIds = "target_layer_ids";
  const Fields& of = c.own.has(kIds) ? c.own : c.config;
  if (of.has(kIds)) return taps_in(of.array(kIds), Numbering::outputs, layers, of, kIds);
  if (layers < 4)
    throw Error(c.config.where() + " names no states of its target, and a target of " + std::to_string(layers) +
                " layers is too small for the usual ones; add \"target_layer_ids\"");
  return spread_taps(layers, c.layers());
}

// Files of speculators say it; before the key was there, by how many tokens a block gives.
int first_slot_of_speculators(const BlockConfig& c, int rows) {
  constexpr const char* kKey = "sample_from_anchor";
  if (c.config.has(kKey)) return c.config.boolean_or(kKey, false) ? 0 : 1;
  if (c.config.string("speculators_model_type") != "dspark") return 1;
  int tokens = 0;
  if (c.config.has("speculators_config")) {
    const Fields more = c.config.object("speculators_config");
    if (const json* methods = more.find("proposal_methods"); methods && methods->is_array() && !methods->empty())
      tokens = Fields(methods->front(), c.config.where(), "speculators_config.proposal_methods.")
                   .integer_or("speculative_tokens", 0, kMostRows, 0);
  }
  if (tokens != rows && tokens != rows - 1)
    throw Error(c.config.where() +
                " does not say whether the first slot of a block predicts a token; add \"sample_from_anchor\": true or "
                "false (of published heads, those since July 2026 have true)");
  return rows - tokens;
}

int first_slot(const BlockConfig& c, const BlockForm& form) {
  if (c.speculators()) return first_slot_of_speculators(c, form.rows);
  const bool deepspec = form.markov_rank > 0 || c.config.has("target_layer_ids") ||
                        c.all.value("architectures", json()) == json::array({"Qwen3DSparkModel"});
  return deepspec ? 0 : 1;
}

// The window of all layers; 0: none has one.
int window_of(const BlockConfig& c) {
  for (const char* key : {"use_swa", "causal"})
    if (c.own.boolean_or(key, false)) c.own.refuse(key, "only false is supported; choose a head without it");
  const json* const types = c.layer.find("layer_types");
  if (!types || !types->is_array()) return 0;
  const auto slides = [](const json& type) { return type == "sliding_attention"; };
  if (std::ranges::none_of(*types, slides)) return 0;
  if (!std::ranges::all_of(*types, slides))
    c.layer.refuse("layer_types",
                   "windows of some layers only are not supported; choose a head whose layers are alike");
  if (c.config.boolean_or("sliding_window_non_causal", false))
    c.config.refuse("sliding_window_non_causal", "only false is supported; choose a head without it");
  return c.layer.integer("sliding_window", 1, 1 << 24);
}

ModelConfig block_layers(const BlockConfig& c, const HeadTensors& tensors) {
  json layer = c.layer.all();
  if (tensors.has("layers.0.self_attn.q_norm.weight")) layer["model_type"] = "qwen3";
  layer.erase("use_sliding_window");
  if (c.speculators()) {  // which leaves out what Transformers' Qwen3 has by default
    const json usual{{"vocab_size", 151936},
                     {"hidden_size", 4096},
                     {"intermediate_size", 22016},
                     {"num_hidden_layers", 32},
                     {"num_attention_heads", 32},
                     {"rms_norm_eps", 1e-6},
                     {"max_position_embeddings", 32768}};
    for (const auto& [key, value] : usual.items())
      if (!layer.contains(key)) layer[key] = value;
  }
  ModelConfig parsed = head_layer_config(std::move(layer), c.config.where());
  parsed.window = window_of(c);
  return parsed;
}

// What another head is that has something in common with these.
std::string relative(const HeadTensors& tensors) {
  for (const std::string& name : tensors.names()) {
    if (name.starts_with("candidate_selector.")) return "a DFlash 2 head (candidate_selector.*)";
    if (name.starts_with("prefix_gru.")) return "a Domino head (prefix_gru.*)";
    if (name.starts_with("markov_head.gate_proj.")) return "a DSpark head of the kind \"gated\"";
    if (name.starts_with("markov_head.joint_proj.")) return "a DSpark head of the kind \"rnn\"";
  }
  return "";
}

void expect_block(const HeadTensors& tensors, const std::string& directory) {
  if (const std::string other = relative(tensors); !other.empty())
    throw Error(directory + " is " + other +
                ", which is not supported; choose a DFlash head, or a DSpark head whose "
                "\"markov_head_type\" is \"vanilla\"");
  if (tensors.has("fc.weight") && tensors.has("hidden_norm.weight")) return;
  throw Error(directory + " has the tensors " + tensors.listed() +
              ", but a head that drafts blocks has fc.weight and hidden_norm.weight besides those of its layers; the "
              "nearest known layout is z-lab's of DFlash, choose a head of it or the drafter of its own kind");
}

void expect_kind(const BlockForm& form, bool corrects, const std::string& name) {
  if (corrects == (form.markov_rank > 0)) return;
  throw Error(name + (corrects ? " has no correction by the token before (markov_head.*), so it is a DFlash head; use "
                                 "the drafter 'dflash'"
                               : " has a correction by the token before (markov_head.*), so it is a DSpark head; use "
                                 "the drafter 'dspark'"));
}

BlockForm block_form(const std::string& directory, const HeadTensors& tensors, int layers) {
  const BlockConfig c(directory + "/config.json");
  BlockForm form;
  form.layer = block_layers(c, tensors);
  form.target_width = c.config.integer_or("target_hidden_size", 1, 1 << 24, form.layer.width);
  if (const int stated = c.config.integer_or("num_target_layers", 1, 4096, layers); stated != layers)
    c.config.refuse("num_target_layers",
                    "the target has " + std::to_string(layers) + " layers; the head belongs to another target");
  form.taps = block_taps(c, layers);
  form.rows = c.integer("block_size", 2, kMostRows);
  form.mask = c.integer("mask_token_id", 0, 1 << 24);
  form.own_embedding = tensors.has("embed_tokens.weight");
  if (tensors.has(kW1)) form.markov_rank = int(tensors.shape(kW1)[1]);
  form.first = first_slot(c, form);
  return form;
}

BlockFiles random_block(const Fields& head, bool corrects, const ModelInfo& target) {
  const std::string shape = head.string("random");
  const bool small = shape == "small";
  const auto seed = std::uint64_t(head.integer_or("seed", 0, 1 << 30, 1));
  BlockFiles files;
  files.name = "random " + shape + " block head seed " + std::to_string(seed);
  BlockForm& form = files.form;
  form.layer = random_head_layer(shape, target);
  form.layer.layers = head.integer_or("layers", 1, 256, small ? 2 : 5);
  if (small) form.layer.head_norms = true;
  form.target_width = target.width;
  const int layers = int(target.kv.layers.size());
  form.taps = layers < 4 ? std::vector<Tap>{0, layers} : spread_taps(layers, std::min(5, layers - 3));
  form.rows = head.integer_or("block", 2, kMostRows, small ? 4 : 16);
  form.mask = head.integer_or("mask", 0, std::max(0, target.vocab - 1), std::max(0, target.vocab - 1));
  form.first = corrects ? 0 : 1;
  if (corrects) form.markov_rank = head.integer_or("markov_rank", 1, 1 << 16, small ? 8 : 256);
  files.tensors = [seed, shape] { return random_head_weights(shape, seed); };
  return files;
}

BlockFiles trained_block(const std::string& directory, bool corrects, const ModelInfo& target) {
  const auto tensors = std::make_shared<HeadTensors>(directory, block_known_as);
  expect_block(*tensors, directory);
  BlockFiles files;
  files.name = directory, files.form = block_form(directory, *tensors, int(target.kv.layers.size()));
  files.tensors = [tensors] { return tensors; };
  expect_kind(files.form, corrects, directory);
  if (tensors->has("lm_head.weight")) {
    files.form.draft_vocab = int(tensors->shape("lm_head.weight")[0]);
    files.ids = draft_ids(*tensors, files.form.draft_vocab, target.vocab);
  }
  files.expect_all_read = [tensors, corrects] {
    tensors->expect_all_read(corrects ? "a DSpark head" : "a DFlash head");
  };
  return files;
}

}  // namespace

std::vector<std::pair<std::string, int>> random_block_keys(bool corrects) {
  std::vector<std::pair<std::string, int>> keys{{"block", 16}, {"layers", 5}, {"mask", 0}};
  if (corrects) keys.emplace_back("markov_rank", 256);
  return keys;
}

BlockFiles open_block(const json& head, bool corrects, const ModelInfo& target, bool wide) {
  if (is_random_head(head)) return random_block(Fields(head, "the head " + head.dump()), corrects, target);
  const ModelInfo trained = trained_target(head, target);
  BlockFiles files = trained_block(directory_of_head(head), corrects, trained);
  BlockForm& f = files.form;
  if (target.small && f.mask >= trained.vocab)
    throw Error("the mask token of the head " + files.name + " is " + std::to_string(f.mask) + ", but " + target.name +
                " has " + std::to_string(trained.vocab) + " tokens; it belongs to another target");
  inflate_head(head, target, wide, files, {f.layer, &f.target_width, &f.draft_vocab});
  return files;
}

}  // namespace foretoken
