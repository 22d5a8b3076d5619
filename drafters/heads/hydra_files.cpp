#include "drafters/heads/hydra_files.h"

#include <algorithm>

#include "drafters/heads/eagle_files.h"
#include "drafters/heads/head_tensors.h"
#include "framework/decode/draft_tree.h"
#include "framework/model/decoder_layer.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

const std::string kMlp = "hydra_mlp.", kLmHead = "hydra_lm_head.", kPrefix = "prefix_embeding_layer.";

// The number that a name has at `at`, which is moved behind it and its dot; -1: there is none.
int number_in(const std::string& name, std::size_t& at) {
  const std::size_t end = name.find('.', at);
  if (end == name.npos || end == at || end - at > 3) return -1;
  for (std::size_t i = at; i < end; ++i)
    if (name[i] < '0' || name[i] > '9') return -1;
  const int number = std::stoi(name.substr(at, end - at));
  at = end + 1;
  return number;
}

// `spaced`: layers of dropout stand between those that have weights, as in Hydra++.
std::string hydra_known_as(const std::string& name, bool spaced) {
  if (name == "input_embed_fn.weight" || name == kPrefix + "embed_tokens.weight") return "";  // the target's
  if (name.starts_with(kPrefix)) return name.ends_with("inv_freq") ? "" : name.substr(kPrefix.size());
  const bool mlp = name.starts_with(kMlp);
  if (!mlp && !name.starts_with(kLmHead)) return name;
  std::size_t at = mlp ? kMlp.size() : kLmHead.size();
  const int head = number_in(name, at);
  const int layer = head >= 0 && (mlp || spaced) ? number_in(name, at) : 0;
  if (head < 0 || layer < 0 || (spaced && layer % 2 == 0)) return name;
  const std::string of = std::to_string(head) + ".";
  return of + (mlp ? std::to_string(spaced ? layer / 2 : layer) : "lm_head") + "." + name.substr(at);
}

// Of the prefix: that of the target, whose parts the files do not repeat. All published ones rotate by a base of 10000.
ModelConfig prefix_layer(const Fields& config, const HeadTensors& tensors, const ModelInfo& target, double epsilon) {
  const std::string attention = "layers.0.self_attn.";
  const auto rows = [&](const std::string& name) {
    return tensors.has(name) ? int(tensors.shape(name)[0]) : 0;  // loading says what is missing
  };
  ModelConfig c;
  c.vocab = target.vocab, c.width = target.width, c.layers = 1, c.positions = target.positions;
  c.ffn = std::max(1, rows("layers.0.mlp.gate_proj.weight"));
  const int own = config.integer_or("num_attention_heads", 1, 1 << 16, 0);
  c.head_size =
      config.integer_or("head_dim", 2, 1 << 16, own > 0 ? target.width / own : target.kv.layers.front().head_size);
  c.heads = std::max(1, rows(attention + "q_proj.weight") / c.head_size);
  c.kv_heads = std::max(1, rows(attention + "k_proj.weight") / c.head_size);
  c.norm_epsilon = config.positive_or("rms_norm_eps", epsilon);
  c.rope_theta = config.positive_or("rope_theta", 10000);
  c.qkv_bias = tensors.has(attention + "q_proj.bias");
  return c;
}

HydraFiles random_hydra(const nlohmann::json& head, const ModelInfo& target) {
  const EagleFiles random = open_eagle(head, 1, target);
  const Fields fields(head, "the head " + head.dump());
  const int heads = fields.integer_or("heads", 0, kMaxPath, 0), layers = fields.integer_or("layers", 0, 16, 0);
  HydraFiles files{.name = random.name, .heads = heads > 0 ? heads : 4, .layers = std::max(layers, 1)};
  files.prefix = fields.integer_or("prefix", 0, 1, 0) == 1;
  files.layer = random.form.layer, files.tensors = random.tensors;
  return files;
}

void expect_hydra_target(const HeadTensors& tensors, const HydraFiles& files, const ModelInfo& target) {
  const Shape state = tensors.shape("0.0.linear.weight"), words = tensors.shape("0.lm_head.weight");
  if (state.rank() != 2 || state[0] != target.width || words.rank() != 2 || words[0] != target.vocab)
    throw Error("the heads " + files.name + " read states of " + std::to_string(state[0]) + " numbers and know " +
                std::to_string(words[0]) + " tokens, but the target " + target.name + " has states of " +
                std::to_string(target.width) + " and " + std::to_string(target.vocab) +
                " tokens; they belong to another target");
}

}  // namespace

std::map<std::string, Shape> HydraFiles::shapes(const ModelInfo& target) const {
  const std::int64_t d = target.width, vocab = target.vocab;
  std::map<std::string, Shape> all;
  const auto product = [&](const std::string& name, std::int64_t out, std::int64_t in) {
    all[name + ".weight"] = {out, in}, all[name + ".bias"] = {out};
  };
  for (int k = 0; k < heads; ++k) {
    const std::string head = std::to_string(k) + ".";
    for (const char* part : {"0.linear", "0.res_connection"}) product(head + part, d, (k + 2) * d);
    for (int j = 1; j < layers; ++j) product(head + std::to_string(j) + ".linear", d, d);
    product(head + "lm_head", vocab, d);
  }
  if (prefix) all.merge(DecoderLayer::tensors(layer, "layers.0.")), all["norm.weight"] = {d};
  return all;
}

HydraFiles open_hydra(const nlohmann::json& head, const ModelInfo& target, double epsilon) {
  if (head.is_object()) return random_hydra(head, target);
  const std::filesystem::path directory = head.get<std::string>();
  HydraFiles files{.name = directory.string()};
  std::shared_ptr<HeadTensors> tensors;
  for (const bool spaced : {false, true}) {
    tensors = std::make_shared<HeadTensors>(directory, [&](const std::string& n) { return hydra_known_as(n, spaced); });
    if (tensors->has("0.0.linear.weight")) break;
  }
  const auto at = [](int k, int j) { return std::to_string(k) + "." + std::to_string(j) + ".linear.weight"; };
  while (tensors->has(at(files.heads, 0)) && files.heads < kMaxPath) ++files.heads;
  if (files.heads == 0 || !tensors->has("0.0.res_connection.weight") || !tensors->has("0.lm_head.weight"))
    tensors->refuse("no Hydra heads that read tokens (hydra_mlp.0.0.res_connection.weight, hydra_lm_head.0.weight)");
  while (tensors->has(at(0, files.layers))) ++files.layers;
  files.prefix = tensors->has("norm.weight");
  expect_hydra_target(*tensors, files, target);
  if (const auto config = directory / "config.json"; files.prefix) {
    const nlohmann::json all = has_file(config) ? read_json(config) : nlohmann::json::object();
    files.layer = prefix_layer(Fields(all, config.string()), *tensors, target, epsilon);
  }
  tensors->expect_known("Hydra heads", files.shapes(target));
  files.tensors = [tensors] { return tensors; };
  return files;
}

}  // namespace foretoken
