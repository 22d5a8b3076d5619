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

void read_llama3(const Fields& config, const Fields& rope, ModelConfig& m) {
  RopeScaling& s = m.rope_scaling;
  s.kind = RopeScaling::Kind::llama3;
  s.low_freq_factor = rope.positive("low_freq_factor");
  s.high_freq_factor = rope.positive("high_freq_factor");
  if (s.high_freq_factor <= s.low_freq_factor) rope.refuse("high_freq_factor", "must be greater than low_freq_factor");
  // As in Transformers, the config's own key comes first.
  s.original_positions = (config.has(kOriginal) ? config : rope).integer_or(kOriginal, 1, kMostPositions, m.positions);
}

// LongRoPE (Ding et al. 2024, arXiv 2402.13753). Transformers takes the short factors for sequences of at most the
// original length, and rotates all of a longer one by the long factors: its first keys change as it grows. So the
// original length is the longest here.
void read_longrope(const Fields& config, const Fields& rope, ModelConfig& m) {
  constexpr const char* kShort = "short_factor";
  RopeScaling& s = m.rope_scaling;
  s.kind = RopeScaling::Kind::longrope;
  // That of `rope` is not read, since a Phi3Config has its own, with a default.
  s.original_positions = config.integer_or(kOriginal, 2, kMostPositions, 4096);
  s.factor = rope.positive_or("factor", double(m.positions) / s.original_positions);
  const double usual = s.factor > 1 ? std::sqrt(1 + std::log(s.factor) / std::log(double(s.original_positions))) : 1;
  s.attention_factor = rope.positive_or("attention_factor", usual);
  for (const json& divisor : rope.array(kShort)) {
    const bool good = divisor.is_number() && divisor.get<double>() > 0 && std::isfinite(divisor.get<float>());
    if (!good) rope.refuse(kShort, "must list numbers above 0");
    s.divisors.push_back(divisor.get<float>());
  }
  if (s.divisors.size() != std::size_t(m.rotary > 0 ? m.rotary : m.head_size) / 2)
    rope.refuse(kShort, "must have a number for each frequency");
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
  for (const auto& [name, value] : rope.all().items())
    if (value.is_object())
      rope.refuse(name.c_str(), "one rule for all layers is needed: rules per kind of layer are not supported");
  const char* type_key = rope.has("rope_type") ? "rope_type" : "type";
  const std::string type = rope.string_or(type_key, "default");
  RopeScaling& s = m.rope_scaling;
  if (type == "default") return;
  // Phi's "su" and "yarn" are older names.
  if (defaults.partial && (type == "longrope" || type == "su" || type == "yarn")) return read_longrope(config, rope, m);
  if (defaults.partial || (type != "linear" && type != "llama3"))
    rope.refuse(type_key, defaults.partial
                              ? "the supported kinds of rope scaling are \"default\" and \"longrope\""
                              : "the supported kinds of rope scaling are \"default\", \"linear\" and \"llama3\"");
  s.factor = rope.positive("factor");
  if (s.factor < 1) rope.refuse("factor", "must be at least 1");
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
  if (config.has(key)) read_rule(config, config.object(key), defaults, m);
}

// In float, operation by operation as in torch (where `a / tensor` is a times the reciprocal), so that rotations at
// distant positions agree with Transformers. Llama 3.1's rule as in modeling_rope_utils._compute_llama3_parameters.
std::vector<float> ModelConfig::rope_frequencies() const {
  const RopeScaling& s = rope_scaling;
  const float factor = float(s.factor), low = float(s.low_freq_factor);
  const float low_wavelength = float(s.original_positions / s.low_freq_factor);
  const float high_wavelength = float(s.original_positions / s.high_freq_factor);
  const int rotated = rotary > 0 ? rotary : head_size;
  std::vector<float> frequencies(std::size_t(rotated / 2));
  for (int i = 0; i < rotated / 2; ++i) {
    const float exponent = float(2 * i) / float(rotated);
    const float power = float(std::pow(double(float(rope_theta)), double(exponent)));  // the float nearest to it
    const float f = 1.0f / power;
    frequencies[i] = f;
    if (s.kind == RopeScaling::Kind::linear) frequencies[i] = f / factor;
    if (s.kind == RopeScaling::Kind::divisors) frequencies[i] = f / s.divisors[std::size_t(i)];
    if (s.kind == RopeScaling::Kind::longrope) frequencies[i] = 1.0f / (s.divisors[std::size_t(i)] * power);
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
