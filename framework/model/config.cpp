#include "framework/model/config.h"

#include <algorithm>
#include <set>

#include "framework/model/config_families.h"
#include "framework/model/config_latent.h"
#include "framework/model/config_rope.h"
#include "framework/model/quantized/quantization.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;
using namespace families;

constexpr int kMost = 1 << 24;  // the greatest size in a config: products of two fit 64 bits easily
constexpr int kMostExperts = 4096;

// By "architectures", or where that is absent by "model_type".
const Family& family_of(const Fields& config) {
  const json* a = config.find("architectures");
  std::string known;
  for (const Family& f : kFamilies) {
    known += (known.empty() ? "" : ", ") + std::string(a ? f.architecture : f.model_type);
    if (a ? a->is_array() && a->size() == 1 && (*a)[0] == f.architecture : config.string("model_type") == f.model_type)
      return f;
  }
  config.refuse(a ? "architectures" : "model_type", "the supported ones are " + known);
}

// The value of a key that is absent, which is not null.
int absent_or(const Fields& config, const char* key, int absent, int null) {
  return absent > 0 && !config.all().contains(key) ? absent : null;
}

// Keys that change what the model computes in a way that this project does not implement.
void refuse_unsupported(const Fields& config, const Family& family) {
  const char* const key = family.gemma() ? "hidden_activation" : "hidden_act";
  const std::string known = family.gemma() ? "gelu_pytorch_tanh" : "silu";
  if (config.string_or(key, known) != known) config.refuse(key, "the only activation supported is \"" + known + "\"");
  if (config.boolean_or("use_sliding_window", false))
    config.refuse("use_sliding_window", "only false is supported: windows of some layers only are missing");
  for (const char* key : {"compression_config", "auto_map"}) {
    // Published files of Phi-3 and DeepSeek still name the program that Transformers has made its own.
    if ((family.kind == Kind::phi3 || family.latent()) && key == std::string("auto_map")) continue;
    if (config.has(key)) config.refuse(key, "this is not supported; choose a checkpoint without it");
  }
  if (family.kind == Kind::gemma3 && config.has("attn_logit_softcapping"))
    config.refuse("attn_logit_softcapping", "only null is supported, since Transformers caps no scores of this family");
  if (family.gemma() && config.boolean_or("use_bidirectional_attention", false))
    config.refuse("use_bidirectional_attention", "only false is supported: a row attends to those before it");
}

// Layers of two kinds: those without the window.
std::vector<int> global_layers(const Fields& config, const Family& family, int layers) {
  std::vector<int> all;
  const int period = family.kind == Kind::gemma3 ? config.integer_or("sliding_window_pattern", 1, kMost, family.period)
                                                 : family.period;
  const json* const types = config.has("layer_types") ? &config.array("layer_types") : nullptr;
  if (types && types->size() != std::size_t(layers))
    config.refuse("layer_types",
                  "must name one kind of attention for each of the " + std::to_string(layers) + " layers");
  for (int l = 0; l < layers; ++l) {
    if (types && (*types)[std::size_t(l)] != "full_attention" && (*types)[std::size_t(l)] != "sliding_attention")
      config.refuse("layer_types", "the supported kinds of attention are full_attention and sliding_attention");
    if (types ? (*types)[std::size_t(l)] == "full_attention" : (l + 1) % period == 0) all.push_back(l);
  }
  return all;
}

void read_attention(const Fields& config, const Family& family, ModelConfig& m) {
  const bool mixture = family.experts.count != nullptr, qwen2 = family.kind == Kind::qwen2;
  // As in Transformers: a Mixtral has no biases, whatever its file has, and only the mixture of Qwen2 may lack its own.
  const bool gpt_oss = family.kind == Kind::gpt_oss;
  const bool bias =
      config.boolean_or("attention_bias", gpt_oss) && !(mixture && family.kind != Kind::qwen3 && !gpt_oss);
  m.qkv_bias = bias || (qwen2 && (!mixture || config.boolean_or("qkv_bias", true)));
  m.out_bias = bias && !qwen2;
  m.mlp_bias = config.boolean_or("mlp_bias", false) && !mixture;
  if (family.kind == Kind::phi3) m.qkv_bias = m.out_bias = m.mlp_bias = false, m.fused = true;
  m.joint_norms = family.kind == Kind::olmo2;
  m.head_norms = family.kind == Kind::qwen3 || family.kind == Kind::gemma3 || m.joint_norms;
  if (m.joint_norms) m.pre_norms = m.mlp_bias = false, m.post_norms = true;
  m.sinks = gpt_oss;
  if (family.kind == Kind::smollm3) m.still_layers = still_layers(config, m.layers);
  // Qwen's files have a window that "use_sliding_window" enables. A Llama has none, whatever its file has (as in
  // Transformers).
  if (family.windows)
    m.window = config.integer_or("sliding_window", 1, kMost, absent_or(config, "sliding_window", family.window, 0));
  if (family.period > 0) {
    if (m.window == 0) config.refuse("sliding_window", "some layers need a window");
    m.global_layers = global_layers(config, family, m.layers);
    return;
  }
  if (!config.has("layer_types")) return;
  const json& types = config.array("layer_types");
  if (types.size() != std::size_t(m.layers))
    config.refuse("layer_types",
                  "must name one kind of attention for each of the " + std::to_string(m.layers) + " layers");
  for (const json& type : types)
    if (type != (m.window ? "sliding_attention" : "full_attention"))
      config.refuse("layer_types", "all layers must have the same kind of attention");
}

// Layers whose feed-forward is dense: those of mlp_only_layers, and all but each decoder_sparse_step-th.
std::vector<int> dense_layers(const Fields& config, int layers) {
  std::set<int> dense;
  const int step = config.integer_or("decoder_sparse_step", 1, kMost, 1);
  for (int l = 0; l < layers; ++l)
    if ((l + 1) % step) dense.insert(l);
  if (config.has("mlp_only_layers"))
    for (const json& l : config.array("mlp_only_layers")) {
      const std::optional<int> number = integer_in(l, 0, layers - 1);
      if (!number) config.refuse("mlp_only_layers", "must list numbers of the " + std::to_string(layers) + " layers");
      dense.insert(*number);
    }
  return {dense.begin(), dense.end()};
}

double softcap(const Fields& config, const char* key, double absent) {
  return config.positive_or(key, config.all().contains(key) ? 0 : absent);
}

void read_gemma(const Fields& config, const Family& family, ModelConfig& m) {
  if (!family.gemma()) return;
  m.activation = Activation::gelu;
  m.query_scalar = config.positive_or("query_pre_attn_scalar", 256);
  m.attention_softcap = softcap(config, "attn_logit_softcapping", family.attention_softcap);
  m.logit_softcap = softcap(config, "final_logit_softcapping", family.logit_softcap);
  m.scaled_embedding = m.post_norms = m.gains_less_one = true;
  m.mlp_bias = false;
}

constexpr const char* kUsedExperts = "num_experts_per_tok";

void read_experts(const Fields& config, const Family& family, ModelConfig& m) {
  const Experts& e = family.experts;
  if (e.count == nullptr) return;
  MixtureConfig x;
  // Transformers 5 writes a Qwen3-MoE's under the name of Mixtral's.
  const char* count = config.has(e.count) || family.latent() ? e.count : kMixtral.count;
  x.experts = config.integer_or(count, 1, kMostExperts, e.experts);
  x.used = e.used > 0 ? config.integer_or(kUsedExperts, 1, kMostExperts, e.used)
                      : config.integer(kUsedExperts, 1, kMostExperts);
  if (std::int64_t(x.experts) * m.layers > MixtureConfig::kMost)
    config.refuse(count, "that times num_hidden_layers is beyond any model");
  if (x.used > x.experts) config.refuse(kUsedExperts, "the model has " + std::to_string(x.experts) + " experts");
  x.width = e.hidden > 0 ? config.integer_or(e.width, 1, kMost, e.hidden) : config.integer(e.width, 1, kMost);
  if (e.shared > 0) x.shared_width = config.integer_or("shared_expert_intermediate_size", 1, kMost, e.shared);
  x.renormalized = !e.norm_topk_prob || config.boolean_or("norm_topk_prob", false);
  if (family.latent()) {
    read_routing(config, family.kind == Kind::deepseek3, m.layers, x);
  } else if (family.kind == Kind::gpt_oss) {
    x.router = "router", x.biases = x.stacked = true;
    x.clamped = {.limit = config.positive_or("swiglu_limit", 7), .slope = config.positive_or("swiglu_alpha", 1.702)};
  } else if (family.kind == Kind::mistral)
    x.name_as_mixtral();
  else
    x.dense_layers = dense_layers(config, m.layers);
  if (int(x.dense_layers.size()) < m.layers) m.mixture = x;
}

std::vector<int> token_ids(const Fields& fields, const char* key, int vocab) {
  const json* value = fields.find(key);
  if (!value) return {};
  std::vector<int> ids;
  for (const json& id : value->is_array() ? *value : json::array({*value})) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() >= vocab)
      fields.refuse(key, "must be a token id below vocab_size (" + std::to_string(vocab) + "), or a list of such");
    ids.push_back(id.get<int>());
  }
  return ids;
}

// absent: 0, where a config must have it.
int size_of(const Fields& config, const char* key, int absent) {
  return absent > 0 ? config.integer_or(key, 1, kMost, absent) : config.integer(key, 1, kMost);
}

void read_shape(const Fields& config, const Family& family, ModelConfig& m) {
  m.vocab = size_of(config, "vocab_size", family.vocab);
  m.width = config.integer("hidden_size", 1, kMost);
  m.layers = config.integer("num_hidden_layers", 1, 4096);
  m.prediction_layers = config.integer_or("num_nextn_predict_layers", 0, 64, 0);
  m.heads = size_of(config, "num_attention_heads", family.heads);
  m.kv_heads = config.integer_or("num_key_value_heads", 1, kMost,
                                 absent_or(config, "num_key_value_heads", family.kv_heads, m.heads));
  m.ffn = config.integer("intermediate_size", 1, kMost);
  m.positions = size_of(config, "max_position_embeddings", family.positions);
  if (m.heads % m.kv_heads)
    config.refuse("num_key_value_heads", "must divide num_attention_heads (" + std::to_string(m.heads) + ")");
  if (family.latent()) return read_latent(config, family.kind == Kind::deepseek3, m);
  const int own = absent_or(config, "head_dim", family.head_size, 0);
  if (!config.has("head_dim") && own == 0 && m.width % m.heads)
    config.refuse("num_attention_heads",
                  "must divide hidden_size (" + std::to_string(m.width) + ") where head_dim is absent");
  m.head_size = config.integer_or("head_dim", 1, kMost, own > 0 ? own : m.width / m.heads);
  if (m.head_size % 2)
    throw Error(config.where() + ": the head size is " + std::to_string(m.head_size) +
                ", but must be even for the rotation");
  if (std::int64_t(m.heads) * m.head_size > kMost)
    config.refuse("head_dim", "that times num_attention_heads is beyond any model");
}

ModelConfig read_config(const json& j, const std::string& where) {
  const Fields whole(j, where);
  ModelConfig m;
  const Family& family = family_of(whole);
  const Fields config = family.text ? whole.object(family.text) : whole;
  m.architecture = family.architecture, m.vision = family.text != nullptr;
  refuse_unsupported(config, family);
  read_shape(config, family, m);
  read_attention(config, family, m);
  read_gemma(config, family, m);
  read_experts(config, family, m);
  m.norm_epsilon =
      family.epsilon > 0 ? config.positive_or("rms_norm_eps", family.epsilon) : config.positive("rms_norm_eps");
  m.tied_head = config.boolean_or("tie_word_embeddings", family.tied);
  read_rope(config, {family.rope_theta, family.local_theta, family.kind == Kind::phi3, family.rope_rule}, m);
  if (family.period == 0 && m.window >= m.positions) m.window = 0;  // no sequence is so long
  if (whole.has("quantization_config")) m.quantization = read_quantization(whole.object("quantization_config"));
  m.eos = token_ids(whole.has("eos_token_id") ? whole : config, "eos_token_id", m.vocab);
  if (const auto bos = token_ids(config, "bos_token_id", m.vocab); !bos.empty()) m.bos = bos.front();
  if (const auto mask = token_ids(config, "pard_token", m.vocab); !mask.empty()) m.mask = mask.front();
  return m;
}

}  // namespace

const std::vector<std::string>& architectures() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> names;
    for (const Family& f : kFamilies) names.emplace_back(f.architecture);
    return names;
  }();
  return all;
}

ModelConfig ModelConfig::parse(std::string_view text, const std::string& where) {
  return read_config(parse_json(text, where), where);
}

ModelConfig ModelConfig::load(const std::filesystem::path& directory) {
  expect_model_directory(directory);
  const auto file = directory / "config.json";
  ModelConfig m = read_config(read_json(file), file.string());
  if (const auto generation = directory / "generation_config.json"; has_file(generation)) {
    const json g = read_json(generation);
    const Fields fields(g, generation.string());
    if (fields.has("eos_token_id")) m.eos = token_ids(fields, "eos_token_id", m.vocab);
  }
  return m;
}

ModelConfig ModelConfig::of_layer(int l) const {
  ModelConfig c = *this;
  if (mixture && std::ranges::binary_search(mixture->dense_layers, l)) c.mixture.reset();
  if (std::ranges::binary_search(global_layers, l))
    c.window = 0;
  else if (local_theta > 0)
    c.rope_theta = local_theta, c.rope_scaling = {};
  c.still = std::ranges::binary_search(still_layers, l);
  c.global_layers.clear(), c.still_layers.clear(), c.local_theta = 0;
  return c;
}

}  // namespace foretoken
