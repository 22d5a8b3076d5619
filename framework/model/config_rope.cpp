#include "framework/model/config_rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;

constexpr int kMostPositions = 1 << 24;

constexpr const char* kOriginal = "original_max_position_embeddings";

// As in Transformers, the config's own key comes first.
int original_positions(const Fields& config, const Fields& rope, int absent) {
  return (config.has(kOriginal) ? config : rope).integer_or(kOriginal, 1, kMostPositions, absent);
}

void read_llama3(const Fields& config, const Fields& rope, ModelConfig& m) {
  RopeScaling& s = m.rope_scaling;
  s.kind = RopeScaling::Kind::llama3;
  s.low_freq_factor = rope.positive("low_freq_factor");
  s.high_freq_factor = rope.positive("high_freq_factor");
  if (s.high_freq_factor <= s.low_freq_factor) rope.refuse("high_freq_factor", "must be greater than low_freq_factor");
  s.original_positions = original_positions(config, rope, m.positions);
}

// The factor of cosines and sines is that of the file; or, where DeepSeek's two keys are there, their ratio.
void read_yarn(const Fields& config, const Fields& rope, ModelConfig& m) {
  constexpr const char *kScale = "mscale", *kAllDim = "mscale_all_dim";
  RopeScaling& s = m.rope_scaling;
  s.kind = RopeScaling::Kind::yarn;
  s.original_positions = original_positions(config, rope, m.positions);
  s.factor = rope.positive_or("factor", double(m.positions) / s.original_positions);
  if (s.factor < 1) rope.refuse("factor", "must be at least 1");
  if (m.rope_theta <= 1) (rope.has("rope_theta") ? rope : config).refuse("rope_theta", "must be above 1 for \"yarn\"");
  s.fast_turns = rope.positive_or("beta_fast", 32), s.slow_turns = rope.positive_or("beta_slow", 1);
  if (s.fast_turns < s.slow_turns) rope.refuse("beta_fast", "must be at least beta_slow");
  s.whole = rope.boolean_or("truncate", true);
  const auto scale_of = [&](const char* key) {  // 0 counts as absent
    const json* const value = rope.find(key);
    return value && *value == 0 ? 0.0 : rope.positive_or(key, 0);
  };
  const double scale = scale_of(kScale), all_dim = scale_of(kAllDim);
  const double usual =
      scale > 0 && all_dim > 0 ? yarn_scale(s.factor, scale) / yarn_scale(s.factor, all_dim) : yarn_scale(s.factor);
  s.attention_factor = rope.positive_or("attention_factor", usual);
  s.all_dim_scale = all_dim;
}

std::vector<float> factors_of(const Fields& rope, const char* key, const ModelConfig& m) {
  std::vector<float> divisors;
  for (const json& divisor : rope.array(key)) {
    const bool good = divisor.is_number() && divisor.get<double>() > 0 && std::isfinite(divisor.get<float>());
    if (!good) rope.refuse(key, "must list numbers above 0");
    divisors.push_back(divisor.get<float>());
  }
  if (divisors.size() != std::size_t(m.rotary > 0 ? m.rotary : m.head_size) / 2)
    rope.refuse(key, "must have a number for each frequency");
  return divisors;
}

// LongRoPE (Ding et al. 2024, arXiv 2402.13753). Transformers takes the short factors for sequences of at most the
// original length, and rotates all of a longer one by the long factors: its first keys change as it grows. Here one of
// them holds for all sequences of a run: the short ones, and the original length is the longest, or
// with_long_factors().
void read_longrope(const Fields& config, const Fields& rope, bool partial, ModelConfig& m) {
  RopeScaling& s = m.rope_scaling;
  s.kind = RopeScaling::Kind::longrope;
  // That of `rope` is not read in Phi's, since a Phi3Config has its own, with a default.
  s.original_positions =
      partial ? config.integer_or(kOriginal, 2, kMostPositions, 4096) : original_positions(config, rope, m.positions);
  s.factor = rope.positive_or("factor", double(m.positions) / s.original_positions);
  const double usual = s.factor > 1 && s.original_positions > 1
                           ? std::sqrt(1 + std::log(s.factor) / std::log(double(s.original_positions)))
                           : 1;
  s.attention_factor = rope.positive_or("attention_factor", usual);
  s.divisors = factors_of(rope, "short_factor", m);
  if (rope.has("long_factor")) s.long_divisors = factors_of(rope, "long_factor", m), s.long_positions = m.positions;
  m.positions = std::min(m.positions, s.original_positions);
}

void read_part(const Fields& fields, const RopeDefaults& defaults, ModelConfig& m) {
  constexpr const char* kPart = "partial_rotary_factor";
  const double part = fields.positive_or(kPart, 1);
  if (part == 1) return;
  if (!defaults.partial) fields.refuse(kPart, "only 1 is supported");
  m.rotary = part < 1 ? int(m.head_size * part) : 0;
  if (m.rotary < 2 || m.rotary % 2)
    fields.refuse(kPart, "must make an even number of the head size of " + std::to_string(m.head_size));
}

// A rule for all layers, or for those without a window. `rope` may be all of the config.
void read_rule(const Fields& config, const Fields& rope, const RopeDefaults& defaults, ModelConfig& m) {
  m.rope_theta = rope.positive_or("rope_theta", m.rope_theta);
  read_part(rope, defaults, m);
  if (rope.has("mrope_section")) rope.refuse("mrope_section", "positions of several axes are not supported");
  for (const auto& [name, value] : rope.all().items())
    if (value.is_object())
      rope.refuse(name.c_str(), "one rule for all layers is needed: rules per kind of layer are not supported");
  const char* type_key = rope.has("rope_type") ? "rope_type" : "type";
  const std::string type = rope.string_or(type_key, "default");
  RopeScaling& s = m.rope_scaling;
  if (type == "default") return;
  // Phi's "su" and "yarn" are older names.
  if (type == "longrope" || (defaults.partial && (type == "su" || type == "yarn")))
    return read_longrope(config, rope, defaults.partial, m);
  if (defaults.partial) rope.refuse(type_key, "the supported kinds of rope scaling are \"default\" and \"longrope\"");
  if (type == "yarn") return read_yarn(config, rope, m);
  if (type != "linear" && type != "llama3" && type != "dynamic")
    rope.refuse(type_key,
                "the supported kinds of rope scaling are \"default\", \"linear\", \"llama3\", \"yarn\", "
                "\"longrope\" and \"dynamic\"");
  s.factor = rope.positive("factor");
  if (s.factor < 1) rope.refuse("factor", "must be at least 1");
  // NTK scaling by length leaves the frequencies of a sequence of at most max_position_embeddings as they are, and
  // longer ones are not run.
  if (type == "dynamic") return void(s.factor = 1);
  s.kind = RopeScaling::Kind::linear;
  if (type == "llama3") read_llama3(config, rope, m);
}

// As Transformers 5 writes rules of two kinds of layers.
void read_rules_by_kind(const Fields& config, const Fields& rope, const RopeDefaults& defaults, ModelConfig& m) {
  constexpr const char *kFull = "full_attention", *kSliding = "sliding_attention";
  for (const auto& [name, value] : rope.all().items())
    if (name != kFull && name != kSliding)
      rope.refuse(name.c_str(), "a rule for each kind of layer is needed, full_attention and sliding_attention");
  if (rope.has(kFull)) read_rule(config, rope.object(kFull), defaults, m);
  if (!rope.has(kSliding)) return;
  const Fields local = rope.object(kSliding);
  m.local_theta = local.positive_or("rope_theta", m.local_theta);
  if (local.string_or("rope_type", "default") != "default")
    local.refuse("rope_type", "only \"default\" is supported in layers with a window");
}

}  // namespace

// Transformers 5 writes everything into rope_parameters; version 4 wrote rope_theta beside rope_scaling. Where a file
// has both, rope_scaling is used, as in Transformers.
void read_rope(const Fields& config, const RopeDefaults& defaults, ModelConfig& m) {
  constexpr const char *kScaling = "rope_scaling", *kParameters = "rope_parameters";
  m.rope_theta = config.positive_or("rope_theta", defaults.theta);
  read_part(config, defaults, m);
  if (defaults.local_theta > 0) {
    m.local_theta = config.positive_or("rope_local_base_freq", defaults.local_theta);
    if (config.has(kParameters)) read_rules_by_kind(config, config.object(kParameters), defaults, m);
    if (config.has(kScaling)) read_rule(config, config.object(kScaling), defaults, m);
    return;
  }
  const char* key = config.has(kScaling) ? kScaling : kParameters;
  if (config.has(key)) return read_rule(config, config.object(key), defaults, m);
  if (!defaults.rule) return;
  const json rule = json::parse(defaults.rule);
  read_rule(config, Fields(rule, config.where(), std::string(kParameters) + "."), defaults, m);
}

std::vector<int> still_layers(const Fields& config, int layers) {
  constexpr const char* kLayers = "no_rope_layers";
  std::vector<int> all;
  const int interval = config.integer_or("no_rope_layer_interval", 1, kMostPositions, 4);
  const json* const listed = config.has(kLayers) ? &config.array(kLayers) : nullptr;
  if (listed && listed->size() < std::size_t(layers))
    config.refuse(kLayers, "must have a 1 or a 0 for each of the " + std::to_string(layers) + " layers");
  for (int l = 0; l < layers; ++l) {
    if (listed && !integer_in((*listed)[std::size_t(l)], 0, 1))
      config.refuse(kLayers, "must list a 1 for each layer that rotates queries and keys, and a 0 for each other one");
    if (listed ? (*listed)[std::size_t(l)] == 0 : (l + 1) % interval == 0) all.push_back(l);
  }
  return all;
}

double yarn_scale(double factor, double scale) { return factor > 1 ? 0.1 * scale * std::log(factor) + 1 : 1; }

ModelConfig ModelConfig::with_long_factors() const {
  if (rope_scaling.long_divisors.empty())
    throw Error("a " + architecture +
                " without LongRoPE's long factors has no longer context; leave \"long_context\" out");
  ModelConfig m = *this;
  m.rope_scaling.divisors = rope_scaling.long_divisors, m.positions = rope_scaling.long_positions;
  return m;
}

namespace {

// The part of a frequency that YaRN scales, as Transformers computes it: 0 of those that turn often, 1 of those that
// turn seldom, and a ramp between the two.
struct YarnRamp {
  float low = 0, width = 1;

  YarnRamp() = default;
  YarnRamp(const RopeScaling& s, double theta, int rotated) {
    const auto dimension = [&](double turns) {
      return rotated * std::log(s.original_positions / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
    };
    double from = dimension(s.fast_turns), to = dimension(s.slow_turns);
    if (s.whole) from = std::floor(from), to = std::ceil(to);
    from = std::max(from, 0.0), to = std::min(to, double(rotated - 1));
    low = float(from), width = float(from == to ? 0.001 : to - from);
  }
  float operator()(int i) const { return std::clamp((float(i) - low) / width, 0.0f, 1.0f); }
};

}  // namespace

// In float, operation by operation as in torch (where `a / tensor` is a times the reciprocal), so that rotations at
// distant positions agree with Transformers. Llama 3.1's rule as in modeling_rope_utils._compute_llama3_parameters.
std::vector<float> ModelConfig::rope_frequencies() const {
  const RopeScaling& s = rope_scaling;
  const float factor = float(s.factor), low = float(s.low_freq_factor);
  const float low_wavelength = float(s.original_positions / s.low_freq_factor);
  const float high_wavelength = float(s.original_positions / s.high_freq_factor);
  const int rotated = rotary > 0 ? rotary : head_size;
  std::vector<float> frequencies(std::size_t(rotated / 2));
  if (still) return frequencies;  // by 0
  const YarnRamp ramp = s.kind == RopeScaling::Kind::yarn ? YarnRamp(s, rope_theta, rotated) : YarnRamp();
  for (int i = 0; i < rotated / 2; ++i) {
    const float exponent = float(2 * i) / float(rotated);
    const float power = float(std::pow(double(float(rope_theta)), double(exponent)));  // the float nearest to it
    const float f = 1.0f / power;
    frequencies[i] = f;
    if (s.kind == RopeScaling::Kind::linear) frequencies[i] = f / factor;
    if (s.kind == RopeScaling::Kind::divisors) frequencies[i] = f / s.divisors[std::size_t(i)];
    if (s.kind == RopeScaling::Kind::longrope) frequencies[i] = 1.0f / (s.divisors[std::size_t(i)] * power);
    if (s.kind == RopeScaling::Kind::yarn) {
      const float kept = 1.0f - ramp(i);
      frequencies[i] = 1.0f / (factor * power) * (1.0f - kept) + f * kept;
    }
    if (s.kind != RopeScaling::Kind::llama3) continue;
    const float wavelength = float(2 * std::numbers::pi) * (1.0f / f);
    const float slow = wavelength > low_wavelength ? f / factor : f;
    frequencies[i] = slow;
    if (wavelength < high_wavelength || wavelength > low_wavelength) continue;
    const float smooth =
        (float(s.original_positions) * (1.0f / wavelength) - low) / float(s.high_freq_factor - s.low_freq_factor);
    frequencies[i] = (1.0f - smooth) * slow / factor + smooth * slow;
  }
  return frequencies;
}

}  // namespace foretoken
