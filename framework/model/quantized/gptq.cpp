// GPTQ (arXiv 2210.17323), as AutoGPTQ and GPTQModel store it. MODULE.qweight I32 [in * bits / 32, out], codes along
// the inputs; qzeros I32 [groups, out * bits / 32], zero points along the outputs; scales [groups, out]; g_idx I32
// [in], the group of each input. w = scale * (code - zero). Version 1 stores zero points minus one; GPTQModel's
// subtracts 1 from each of them in a word at once, so that a zero point of 0 borrows from the next.
#include <algorithm>

#include "framework/model/in_parallel.h"
#include "framework/model/quantized/methods.h"
#include "framework/model/quantized/module_names.h"
#include "framework/model/quantized/settings.h"
#include "framework/model/quantized/unpacking.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

enum class ZeroPoints : std::uint8_t {
  as_they_are,     // gptq_v2
  minus_one,       // gptq
  words_minus_one  // gptq, written by GPTQModel
};

class Gptq final : public Quantization {
 public:
  explicit Gptq(const Fields& settings);

  std::string method() const override { return "gptq"; }
  std::vector<Activations> schemes() const override { return {{.weights = &format()}}; }
  std::vector<std::string> marks() const override { return {"qweight"}; }
  std::vector<std::string> other_parts() const override { return {"qzeros", "scales", "g_idx"}; }
  bool excludes(const std::string& module) const override { return excluded_.contains(module); }
  bool covers(const std::string& module) const override {
    return !excludes(module) && (quantized_.empty() || std::ranges::any_of(quantized_, [&](const std::string& end) {
                                   return module.ends_with(end);
                                 }));
  }
  Weight unpack(const Parts& parts) const override;

 private:
  const WeightFormat& format() const { return unpacking::integers(bits_, group_ > 0, symmetric_); }
  void unpack_codes(const Tensor& words, Weight& w) const;
  Tensor zeros_of(const Parts& parts, std::int64_t groups) const;

  int bits_;
  int group_;  // -1: all inputs
  bool by_activation_, symmetric_;
  ZeroPoints zero_points_ = ZeroPoints::minus_one;
  ExcludedModules excluded_;
  std::vector<std::string> quantized_;  // ends of the names of quantized modules; none: all
};

// "gptqmodel:1.2.3" in meta.quantizer, which is a string or a list of strings.
bool is_by_gptqmodel(const Fields& settings) {
  if (!settings.has("meta")) return false;
  const Fields meta = settings.object("meta");
  const nlohmann::json* quantizer = meta.find("quantizer");
  if (!quantizer) return false;
  const nlohmann::json all = quantizer->is_array() ? *quantizer : nlohmann::json::array({*quantizer});
  return std::ranges::any_of(all, [](const nlohmann::json& name) {
    return name.is_string() && name.get<std::string>().starts_with("gptqmodel:");
  });
}

// modules_in_block_to_quantize: names, or lists of them in the order in which they were quantized.
std::vector<std::string> quantized_modules(const Fields& settings) {
  constexpr const char* kKey = "modules_in_block_to_quantize";
  std::vector<std::string> all;
  if (!settings.has(kKey)) return all;
  for (const nlohmann::json& entry : settings.array(kKey))
    for (const nlohmann::json& name : entry.is_array() ? entry : nlohmann::json::array({entry})) {
      if (!name.is_string() || name == "")
        settings.refuse(kKey, "must be a list of names of modules, or of such lists; download config.json again");
      all.push_back(name);
    }
  return all;
}

void refuse_other_packing(const Fields& settings) {
  if (const std::string type = settings.string_or("pack_dtype", "int32"); type != "int32")
    settings.refuse("pack_dtype", "the supported one is \"int32\"; choose a checkpoint of it");
  if (settings.boolean_or("is_marlin_format", false))
    settings.refuse("is_marlin_format", "only false is supported; choose the checkpoint before its conversion");
  refuse_settings_of_modules(settings);
  expect_empty(settings, "adapter", "adapters are not supported; choose the checkpoint without them");
}

Gptq::Gptq(const Fields& settings)
    : bits_(settings.integer("bits", 1, 32)),
      group_(settings.integer_or("group_size", -1, 1 << 24, 128)),
      by_activation_(settings.boolean_or("desc_act", false)),
      symmetric_(settings.boolean_or("sym", true)),
      excluded_(settings, "modules_to_not_convert"),
      quantized_(quantized_modules(settings)) {
  if (bits_ != 4 && bits_ != 8)
    settings.refuse("bits", "the supported ones are 4 and 8; choose a checkpoint of one of them");
  if (group_ == 0) settings.refuse("group_size", "must be above 0, or -1 for all inputs; download config.json again");
  refuse_other_packing(settings);
  const char* key = settings.has("checkpoint_format") ? "checkpoint_format" : "format";
  const std::string version = settings.string_or(key, "gptq");
  if (version == "gptq_v2")
    zero_points_ = ZeroPoints::as_they_are;
  else if (version != "gptq")
    settings.refuse(key, "the supported ones are \"gptq\" and \"gptq_v2\"; choose a checkpoint of one of them");
  else if (is_by_gptqmodel(settings))
    zero_points_ = ZeroPoints::words_minus_one;
}

// In strips of 16 outputs, whose words are neighbours.
void Gptq::unpack_codes(const Tensor& words, Weight& w) const {
  constexpr std::int64_t kStrip = 16;
  const std::int64_t in_a_word = 32 / bits_;
  const std::uint32_t mask = (1u << bits_) - 1;
  in_parallel((w.out + kStrip - 1) / kStrip, w.in * kStrip, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t strip = begin; strip < end; ++strip)
      for (std::int64_t r = 0; r < w.in / in_a_word; ++r)
        for (std::int64_t o = strip * kStrip; o < std::min(w.out, (strip + 1) * kStrip); ++o) {
          const auto word = std::uint32_t(words.row<std::int32_t>(r)[o]);
          for (std::int64_t k = 0; k < in_a_word; ++k)
            w.values.row<std::uint8_t>(o)[r * in_a_word + k] = std::uint8_t(word >> bits_ * int(k) & mask);
        }
  });
}

// f32 [out, groups], less 2^(bits - 1) as codes are; absent where all are 0.
Tensor Gptq::zeros_of(const Parts& parts, std::int64_t groups) const {
  const std::int64_t in_a_word = 32 / bits_;
  const Tensor stored = parts.of("qzeros", DType::i32, {groups, (parts.out + in_a_word - 1) / in_a_word});
  const Tensor zeros = Tensor::host({parts.out, groups}, DType::f32);
  const std::int32_t greatest = (1 << bits_) - 1, offset = 1 << (bits_ - 1);
  const std::uint32_t ones = bits_ == 4 ? 0x11111111u : 0x01010101u;
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t o = 0; o < parts.out; ++o) {
      auto word = std::uint32_t(stored.row<std::int32_t>(g)[o / in_a_word]);
      if (zero_points_ == ZeroPoints::words_minus_one) word += ones;
      std::int32_t zero = std::int32_t(word >> bits_ * int(o % in_a_word) & std::uint32_t(greatest));
      if (zero_points_ == ZeroPoints::minus_one && ++zero > greatest)
        parts.refuse("qzeros", "holds the zero point " + std::to_string(zero) + " of output " + std::to_string(o) +
                                   ", beyond the greatest code " + std::to_string(greatest) +
                                   ", which readers of this version interpret differently; convert the checkpoint to "
                                   "gptq_v2");
      zeros.row<float>(o)[g] = float(zero - offset);
    }
  return unpacking::all_zero(zeros) ? Tensor() : zeros;
}

Weight Gptq::unpack(const Parts& parts) const {
  const std::int64_t group = group_ < 0 ? parts.in : group_, in_a_word = 32 / bits_;
  parts.expect_groups(group, "group_size");
  if (parts.in % in_a_word != 0) parts.expect_groups(in_a_word, "bits, since a word holds so many codes,");
  const std::int64_t groups = parts.in / group;
  Weight w = unpacking::empty(parts, format());
  unpack_codes(parts.of("qweight", DType::i32, {parts.in / in_a_word, parts.out}), w);
  w.group = int(group);
  w.zeros = zeros_of(parts, groups);
  const Tensor scales = parts.numbers("scales", {groups, parts.out}, unpacking::greatest(*w.format, bool(w.zeros)));
  w.scales = Tensor::host({parts.out, groups}, DType::f32);
  for (std::int64_t o = 0; o < parts.out; ++o)
    for (std::int64_t g = 0; g < groups; ++g) w.scales.row<float>(o)[g] = scales.row<float>(g)[o];
  if (parts.has("g_idx"))
    unpacking::reorder(w, unpacking::order_of(parts, "g_idx", parts.of("g_idx", DType::i32, {parts.in}), group));
  else if (by_activation_ && groups > 1)
    parts.refuse("g_idx", "is missing, which desc_act of config.json requires; download the checkpoint again");
  return w;
}

}  // namespace

std::shared_ptr<const Quantization> read_gptq(const Fields& settings) { return std::make_shared<Gptq>(settings); }

}  // namespace foretoken
