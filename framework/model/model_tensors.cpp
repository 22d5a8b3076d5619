#include "framework/model/model_tensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "framework/model/decoder_layer.h"
#include "kernels/error.h"

namespace foretoken {

std::string layer_prefix(int l) { return "model.layers." + std::to_string(l) + "."; }

namespace {

constexpr const char* kTable = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

// Every loader computes these from the configuration.
bool is_rotary_buffer(const std::string& name) {
  return std::ranges::any_of(std::array{"inv_freq", "original_inv_freq", "cos_cached", "sin_cached"},
                             [&](auto* part) { return name.ends_with(std::string("rotary_emb.") + part); });
}

// How activations or caches are to be rounded, or how a matrix was. A dense matrix has its final values already.
bool is_quantizer_scale(const std::string& name) {
  const std::string last = name.substr(name.rfind('.') + 1);
  for (const char* of : {"input", "output", "weight", "q", "k", "v", "prob_output"})
    for (const char* what : {"_scale", "_scale_inv", "_global_scale", "_zero_point"})
      if (last == std::string(of) + what) return true;
  return false;
}

// Layers of multi-token prediction, after the others: what merges a hidden state with a token's embedding tells them
// from layers that num_hidden_layers left out.
std::vector<std::string> prediction_layers(const ModelConfig& c, const std::vector<std::string>& names) {
  std::vector<std::string> found;
  for (int l = c.layers; l < c.layers + c.prediction_layers; ++l)
    if (std::ranges::any_of(std::array{"eh_proj.", "enorm.", "hnorm."}, [&](const char* part) {
          return std::ranges::any_of(names, [&](const auto& name) { return name.starts_with(layer_prefix(l) + part); });
        }))
      found.push_back(layer_prefix(l));
  return found;
}

// Multi-token prediction: such layers, or separate modules.
bool predicts_further_tokens(const std::string& name, const std::vector<std::string>& layers) {
  if (std::ranges::any_of(layers, [&](const std::string& l) { return name.starts_with(l); })) return true;
  return std::ranges::any_of(std::array{"mtp.", "model.mtp.", "model.mtp_layers."},
                             [&](const char* module) { return name.starts_with(module); });
}

bool same_numbers(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && std::memcmp(a.raw(), b.raw(), std::size_t(a.bytes())) == 0;
}

void expect_tied_head(const ModelConfig& c, const TensorSource& source) {
  const Shape shape{c.vocab, c.width};
  if (same_numbers(source.tensor(kHead, shape), source.tensor(kTable, shape))) return;
  throw Error(source.where() + ": config.json has tie_word_embeddings, but the tensor '" + kHead + "' differs from '" +
              kTable +
              "'; set tie_word_embeddings to false if the model has a head of its own, or download both again");
}

std::string counted(std::size_t n, const std::string& noun) {
  return std::to_string(n) + " " + noun + (n == 1 ? "" : "s");
}

[[noreturn]] void refuse(const std::vector<std::string>& unused, const ModelConfig& c, const TensorSource& source) {
  constexpr std::size_t kShown = 3;
  std::string names;
  for (std::size_t i = 0; i < std::min(kShown, unused.size()); ++i) names += (i ? ", " : "") + unused[i];
  if (unused.size() > kShown) names += " and " + std::to_string(unused.size() - kShown) + " more";
  throw Error(source.where() + " holds " + counted(unused.size(), "tensor") + " that a " + c.architecture + " of " +
              counted(std::size_t(c.layers), "layer") + " does not use: " + names +
              "; config.json belongs to another checkpoint, or this kind of model is not supported: correct it, or "
              "download both again");
}

}  // namespace

std::map<std::string, Shape> tensors_of(const ModelConfig& c) {
  std::map<std::string, Shape> all{{kTable, {c.vocab, c.width}}, {"model.norm.weight", {c.width}}};
  if (!c.tied_head) all[kHead] = {c.vocab, c.width};
  if (c.head_bias) all["lm_head.bias"] = {c.vocab};
  for (int l = 0; l < c.layers; ++l) all.merge(DecoderLayer::tensors(c.of_layer(l), layer_prefix(l)));
  return all;
}

void expect_no_other_tensors(const ModelConfig& config, const TensorSource& source) {
  const auto used = tensors_of(config);
  const std::vector<std::string> names = source.names(), further = prediction_layers(config, names);
  std::vector<std::string> unused;
  for (const std::string& name : names) {
    if (used.contains(name) || is_rotary_buffer(name) || is_quantizer_scale(name)) continue;
    if (predicts_further_tokens(name, further)) continue;
    if (name == kHead)
      expect_tied_head(config, source);
    else
      unused.push_back(name);
  }
  if (!unused.empty()) refuse(unused, config, source);
}

}  // namespace foretoken
