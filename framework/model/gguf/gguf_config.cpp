#include "framework/model/gguf/gguf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>

#include "framework/model/gguf/gguf_cursor.h"
#include "framework/model/gguf/gguf_latent.h"
#include "framework/text/known_names.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

constexpr int kGreatest = 1 << 24;  // the greatest size: products of two fit 64 bits easily
constexpr int kMostGgufExperts = 4096;
constexpr const char *kDivisors = "rope_freqs.weight", *kShortFactors = "rope_factors_short.weight",
                     *kLongFactors = "rope_factors_long.weight";

struct GgufFamily {
  const char* name;
  const char* architecture;  // without experts; null: it always has some
  bool rotates_neighbours = false;
  const char* mixture = nullptr;  // with experts; null: it has none
  bool renormalized = true;       // as llama.cpp has it: no key says so
  // As llama.cpp has them where a file has no such keys. Each so many-th layer attends to all positions, the others
  // have a window; 0: all are alike.
  int period = 0;
  int window = 0;                                   // 0: a file must have one
  double local_theta = 0;                           // of layers with a window; 0: that of all
  double attention_softcap = 0, logit_softcap = 0;  // 0: none
  bool fused = false;         // Phi-3: matrices, and a head that may be rotated in part, by LongRoPE
  int layers_of_largest = 0;  // a model of so many layers divides scores by the root of width / heads
  bool gemma = false;
  bool norms_behind = false;  // OLMo 2: norms behind sublayers alone, and one of all heads
  int still_period = 0;       // each so many-th layer rotates nothing; 0: none
  bool gpt_oss = false;
  bool latent = false;  // gguf_latent.h
};
constexpr GgufFamily kGgufFamilies[] = {
    {.name = "llama", .architecture = "LlamaForCausalLM", .rotates_neighbours = true, .mixture = "MixtralForCausalLM"},
    {.name = "qwen2", .architecture = "Qwen2ForCausalLM"},
    {.name = "qwen3", .architecture = "Qwen3ForCausalLM"},
    {.name = "qwen2moe", .architecture = nullptr, .mixture = "Qwen2MoeForCausalLM", .renormalized = false},
    {.name = "qwen3moe", .architecture = nullptr, .mixture = "Qwen3MoeForCausalLM"},
    {.name = "gemma2",
     .architecture = "Gemma2ForCausalLM",
     .period = 2,
     .window = 4096,
     .attention_softcap = 50,
     .logit_softcap = 30,
     .layers_of_largest = 46,
     .gemma = true},
    {.name = "gemma3",
     .architecture = "Gemma3ForCausalLM",
     .period = 6,
     .local_theta = 10000,
     .layers_of_largest = 62,
     .gemma = true},
    {.name = "phi3", .architecture = "Phi3ForCausalLM", .fused = true},
    {.name = "olmo2", .architecture = "Olmo2ForCausalLM", .norms_behind = true},
    {.name = "smollm3", .architecture = "SmolLM3ForCausalLM", .rotates_neighbours = true, .still_period = 4},
    {.name = "gpt-oss", .architecture = nullptr, .mixture = "GptOssForCausalLM", .period = 2, .gpt_oss = true},
    {.name = "deepseek2", .architecture = nullptr, .mixture = "DeepseekV2ForCausalLM", .latent = true}};

const GgufFamily& family_of(const GgufFile& file) {
  const std::string name = file.metadata().string("general.architecture");
  for (const GgufFamily& f : kGgufFamilies)
    if (name == f.name) return f;
  file.metadata().refuse("general.architecture", "the supported ones are " + listed(names_of(kGgufFamilies)));
}

// Any other key of the architecture may change what the model computes.
void refuse_unknown_keys(const GgufMetadata& m, const GgufFamily& family, const std::string& prefix) {
  static const std::set<std::string> kKnown = {"context_length",
                                               "embedding_length",
                                               "block_count",
                                               "feed_forward_length",
                                               "vocab_size",
                                               "tensor_data_layout",
                                               "expert_count",
                                               "expert_used_count",
                                               "expert_feed_forward_length",
                                               "expert_shared_feed_forward_length",
                                               "attention.head_count",
                                               "attention.head_count_kv",
                                               "attention.key_length",
                                               "attention.value_length",
                                               "attention.layer_norm_rms_epsilon",
                                               "rope.dimension_count",
                                               "rope.freq_base",
                                               "rope.scaling.type",
                                               "rope.scaling.factor",
                                               "rope.scaling.original_context_length",
                                               "rope.scaling.yarn_beta_fast",
                                               "rope.scaling.yarn_beta_slow",
                                               "rope.scaling.finetuned"};
  static const std::set<std::string> kOfWindows = {"attention.sliding_window", "attention.sliding_window_pattern",
                                                   "final_logit_softcapping", "rope.freq_base_swa"};
  static const std::set<std::string> kOfFused = {"attention.sliding_window", "rope.scaling.attn_factor"};
  const auto known = [&](const std::string& key) {
    return kKnown.contains(key) || (family.attention_softcap > 0 && key == "attn_logit_softcapping") ||
           (family.gemma && kOfWindows.contains(key)) || (family.gpt_oss && key == "attention.sliding_window") ||
           (family.fused && kOfFused.contains(key)) || (family.latent && is_latent_key(key));
  };
  for (const std::string& key : m.keys())
    if (key.starts_with(prefix) && !known(key.substr(prefix.size())))
      m.refuse(key,
               "this key is not supported, since it may change what the model computes; choose a model without it");
}

// Layers without a router are dense.
void read_experts(const GgufFile& file, const GgufFamily& family, const std::string& prefix, ModelConfig& c) {
  const GgufMetadata& m = file.metadata();
  const std::string count = prefix + "expert_count", used = prefix + "expert_used_count",
                    width = prefix + "expert_feed_forward_length";
  if (family.architecture && m.integer_or(count, 0, kMostGgufExperts, 0) == 0) return;
  if (!family.mixture) m.refuse(count, "a " + c.architecture + " has no experts; choose another model");
  MixtureConfig x;
  x.experts = m.integer(count, 1, kMostGgufExperts);
  x.used = m.integer(used, 1, kMostGgufExperts);
  if (std::int64_t(x.experts) * c.layers > MixtureConfig::kMost)
    m.refuse(count, std::string("that times block_count is beyond any model") + kConvertAgain);
  if (x.used > x.experts) m.refuse(used, "the model has " + std::to_string(x.experts) + " experts" + kConvertAgain);
  x.width = family.architecture ? m.integer_or(width, 1, kGreatest, c.ffn) : m.integer(width, 1, kGreatest);
  x.renormalized = family.renormalized;
  if (family.architecture) x.name_as_mixtral();
  if (family.gpt_oss) x.router = "router", x.biases = true, x.clamped = ClampedGate();  // no key says otherwise
  bool shared = false;
  for (int l = 0; l < c.layers; ++l) {
    const std::string router = "blk." + std::to_string(l) + ".ffn_gate_inp";
    if (!file.tensors().contains(router + ".weight")) x.dense_layers.push_back(l);
    shared = shared || file.tensors().contains(router + "_shexp.weight");
  }
  if (shared) x.shared_width = m.integer_or(prefix + "expert_shared_feed_forward_length", 1, kGreatest, c.ffn);
  c.architecture = family.mixture;
  c.mixture = x;
}

void read_shape(const GgufMetadata& m, const GgufFamily& family, const std::string& prefix, ModelConfig& c) {
  c.vocab = int(std::min<std::size_t>(m.strings("tokenizer.ggml.tokens").size(), kGreatest));
  if (c.vocab < 1) m.refuse("tokenizer.ggml.tokens", std::string("there must be tokens") + kConvertAgain);
  if (m.integer_or(prefix + "vocab_size", 1, kGreatest, c.vocab) != c.vocab)
    m.refuse(prefix + "vocab_size",
             "'tokenizer.ggml.tokens' has " + std::to_string(c.vocab) + " tokens" + kConvertAgain);
  c.width = m.integer(prefix + "embedding_length", 1, kGreatest);
  c.layers = m.integer(prefix + "block_count", 1, 4096);
  c.heads = m.integer(prefix + "attention.head_count", 1, kGreatest);
  c.kv_heads = m.integer_or(prefix + "attention.head_count_kv", 1, kGreatest, c.heads);
  c.ffn = m.integer(prefix + "feed_forward_length", 1, kGreatest);
  c.positions = m.integer(prefix + "context_length", 1, kGreatest);
  c.norm_epsilon = m.positive(prefix + "attention.layer_norm_rms_epsilon");
  if (c.heads % c.kv_heads)
    m.refuse(prefix + "attention.head_count_kv",
             "must divide head_count (" + std::to_string(c.heads) + ")" + kConvertAgain);
  if (family.latent) return;
  const std::string length = prefix + "attention.key_length";
  if (!m.has(length) && c.width % c.heads)
    m.refuse(prefix + "attention.head_count", "must divide embedding_length (" + std::to_string(c.width) +
                                                  ") where attention.key_length is absent" + kConvertAgain);
  c.head_size = m.integer_or(length, 1, kGreatest, c.width / c.heads);
  if (c.head_size % 2 || std::int64_t(c.heads) * c.head_size > kGreatest)
    throw Error(m.where() + ": the head size is " + std::to_string(c.head_size) +
                ", but must be even for the rotation, and at most " + std::to_string(kGreatest) +
                " for all heads together; choose a model of such heads");
  for (const char* key : {"attention.value_length", "rope.dimension_count"}) {
    const int size = m.integer_or(prefix + key, 1, kGreatest, c.head_size);
    if (size == c.head_size) continue;
    if (!family.fused || key != std::string("rope.dimension_count") || size % 2 || size > c.head_size)
      m.refuse(prefix + key,
               "only the head size (" + std::to_string(c.head_size) + ") is supported; choose a model that has it");
    c.rotary = size;
  }
}

void read_windows(const GgufMetadata& m, const GgufFamily& family, const std::string& prefix, ModelConfig& c) {
  const std::string window = prefix + "attention.sliding_window";
  if (family.fused) c.window = m.integer_or(window, 0, kGreatest, 0), c.fused = true;
  if (family.period == 0) return;
  c.window = family.window > 0 ? m.integer_or(window, 1, kGreatest, family.window) : m.integer(window, 1, kGreatest);
  const int period = m.integer_or(prefix + "attention.sliding_window_pattern", 1, kGreatest, family.period);
  for (int l = period - 1; l < c.layers; l += period) c.global_layers.push_back(l);
  if (!family.gemma) return;
  c.local_theta = m.positive_or(prefix + "rope.freq_base_swa", family.local_theta);
  if (family.attention_softcap > 0)
    c.attention_softcap = m.positive_or(prefix + "attn_logit_softcapping", family.attention_softcap);
  c.logit_softcap = m.positive_or(prefix + "final_logit_softcapping", family.logit_softcap);
  if (c.layers == family.layers_of_largest) c.query_scalar = double(c.width) / c.heads;
  c.activation = Activation::gelu;
  c.scaled_embedding = c.post_norms = true;  // gains are stored as they are
}

// Llama 3's scaling, or LongRoPE's: what each frequency is divided by.
std::vector<float> divisors_of(const GgufFile& file, const char* name, const ModelConfig& c) {
  const int count = (c.rotary > 0 ? c.rotary : c.head_size) / 2;
  const auto found = file.tensors().find(name);
  if (found == file.tensors().end()) return {};
  const GgufTensor& t = found->second;
  const auto refuse = [&](const std::string& why) {
    throw Error(file.where() + ": tensor '" + name + "' " + why + kConvertAgain);
  };
  if (t.type->dense != DType::f32 || t.shape != Shape{count})
    refuse(std::string("is ") + t.type->name + " of shape " + t.shape.text() + ", but must be F32 of shape " +
           Shape{count}.text());
  std::vector<float> divisors(static_cast<std::size_t>(count));
  std::memcpy(divisors.data(), t.data, t.bytes);
  if (!std::ranges::all_of(divisors, [](float d) { return std::isfinite(d) && d > 0; }))
    refuse("must hold numbers above 0");
  return divisors;
}

// As llama.cpp has it where keys are absent. It rounds the ramp's ends of every model; gpt-oss was trained without, and
// no key says so.
void read_yarn(const GgufMetadata& m, const std::string& prefix, ModelConfig& c) {
  RopeScaling& s = c.rope_scaling;
  s.kind = RopeScaling::Kind::yarn;
  if (c.rope_theta <= 1) m.refuse(prefix + "rope.freq_base", std::string("must be above 1 for yarn") + kConvertAgain);
  s.original_positions = m.integer_or(prefix + "rope.scaling.original_context_length", 1, kGreatest, c.positions);
  s.fast_turns = m.positive_or(prefix + "rope.scaling.yarn_beta_fast", 32);
  s.slow_turns = m.positive_or(prefix + "rope.scaling.yarn_beta_slow", 1);
  s.whole = !c.sinks;
  s.attention_factor = yarn_scale(s.factor);
}

void read_rope(const GgufFile& file, const std::string& prefix, ModelConfig& c) {
  const GgufMetadata& m = file.metadata();
  c.rope_theta = m.positive_or(prefix + "rope.freq_base", 10000);
  const std::string type = prefix + "rope.scaling.type", factor = prefix + "rope.scaling.factor";
  const std::string kind = m.string_or(type, m.has(factor) ? "linear" : "none");  // llama.cpp's default
  RopeScaling& s = c.rope_scaling;
  s.divisors = divisors_of(file, kShortFactors, c);
  if (!s.divisors.empty()) {  // as config_rope.cpp reads them
    s.kind = RopeScaling::Kind::longrope;
    s.attention_factor = m.positive_or(prefix + "rope.scaling.attn_factor", 1);
    s.long_divisors = divisors_of(file, kLongFactors, c), s.long_positions = c.positions;
    c.positions = m.integer_or(prefix + "rope.scaling.original_context_length", 1, c.positions, c.positions);
    return;
  }
  s.divisors = divisors_of(file, kDivisors, c);
  if (!s.divisors.empty()) s.kind = RopeScaling::Kind::divisors;
  if (kind == "none" && m.has(factor) && m.positive(factor) != 1)
    m.refuse(factor, "'" + type + "' is \"none\"; leave one of them out");
  if (kind == "none") return;
  if (kind != "linear" && kind != "yarn")
    m.refuse(
        type,
        "the supported kinds of rope scaling are \"none\", \"linear\" and \"yarn\"; choose a model of one of them");
  s.factor = m.positive(factor);
  if (s.factor < 1) m.refuse(factor, std::string("must be at least 1") + kConvertAgain);
  if (s.factor == 1) return;
  if (!s.divisors.empty())
    m.refuse(factor, std::string("the tensor '") + kDivisors + "' scales too; leave one of them out");
  s.kind = RopeScaling::Kind::linear;
  if (kind == "yarn") read_yarn(m, prefix, c);
}

// The token that ends a sequence, and those that end a turn. Files name one of them; llama.cpp ends an output at others
// too, which it finds by their text.
// In gpt-oss <|end|> ends a message, behind which the turn goes on.
std::vector<int> ends_of(const GgufMetadata& m, int vocab, bool gpt_oss) {
  std::set<int> ends;
  for (const char* name : {"eos", "eot", "eom"})
    if (const std::string key = std::string("tokenizer.ggml.") + name + "_token_id"; m.has(key))
      ends.insert(m.integer(key, 0, vocab - 1));
  constexpr std::array kTexts = {"<|end|>",       "<|eot_id|>",      "<|eom_id|>",   "<|im_end|>",
                                 "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>"};
  const auto ends_turn = [&](std::string_view token) {
    if (gpt_oss && (token == "<|return|>" || token == "<|call|>")) return true;
    return std::ranges::find(kTexts, token) != kTexts.end() && !(gpt_oss && token == "<|end|>");
  };
  const auto& tokens = m.strings("tokenizer.ggml.tokens");
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (ends_turn(tokens[i])) ends.insert(int(i));
  return {ends.begin(), ends.end()};
}

}  // namespace

std::vector<std::string> gguf_architectures() { return names_of(kGgufFamilies); }

ModelConfig gguf_config(const GgufFile& file) {
  const GgufMetadata& m = file.metadata();
  const GgufFamily& family = family_of(file);
  const std::string prefix = std::string(family.name) + ".";
  const auto has = [&](const char* tensor) { return file.tensors().contains(tensor); };
  refuse_unknown_keys(m, family, prefix);
  ModelConfig c;
  c.architecture = family.architecture ? family.architecture : family.mixture;
  read_shape(m, family, prefix, c);
  if (family.latent) read_gguf_latent(file, prefix, c);
  read_experts(file, family, prefix, c);
  if (family.latent) read_gguf_routing(file, prefix, c);
  c.tied_head = !has("output.weight");
  c.qkv_bias = has("blk.0.attn_q.bias");
  c.out_bias = has("blk.0.attn_output.bias");
  c.mlp_bias = has("blk.0.ffn_gate.bias");
  c.head_norms = has("blk.0.attn_q_norm.weight");
  c.joint_norms = c.post_norms = family.norms_behind, c.pre_norms = !family.norms_behind, c.sinks = family.gpt_oss;
  for (int l = family.still_period - 1; family.still_period > 0 && l < c.layers; l += family.still_period)
    c.still_layers.push_back(l);
  read_windows(m, family, prefix, c);
  read_rope(file, prefix, c);
  if (family.latent) scale_gguf_latent(file, prefix, c);
  if (family.period == 0 && c.window >= c.positions) c.window = 0;  // no sequence is so long
  c.eos = ends_of(m, c.vocab, family.gpt_oss);
  if (m.has("tokenizer.ggml.bos_token_id")) c.bos = m.integer("tokenizer.ggml.bos_token_id", 0, c.vocab - 1);
  return c;
}

bool rotates_neighbours(const GgufFile& file) { return family_of(file).rotates_neighbours; }

}  // namespace foretoken
