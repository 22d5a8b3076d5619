// AWQ (arXiv 2306.00978) in AutoAWQ's layout "gemm". MODULE.qweight I32 [in, out / 8] and qzeros I32 [groups, out / 8],
// codes along the outputs: the nibbles of a word, from the lowest, belong to its outputs 0, 2, 4, 6, 1, 3, 5, 7. scales
// [groups, out]. w = scale * (code - zero).
#include <algorithm>
#include <array>
#include <cctype>

#include "framework/model/in_parallel.h"
#include "framework/model/quantized/methods.h"
#include "framework/model/quantized/module_names.h"
#include "framework/model/quantized/settings.h"
#include "framework/model/quantized/unpacking.h"
#include "framework/text/json_file.h"
#include "kernels/formats/formats.h"

namespace foretoken {
namespace {

constexpr std::int64_t kInAWord = 8;
constexpr std::array<int, kInAWord> kNibbleOf = {0, 4, 1, 5, 2, 6, 3, 7};  // by output

std::uint8_t code_of(const std::int32_t* words, std::int64_t output) {
  return std::uint8_t(std::uint32_t(words[output / kInAWord]) >> 4 * kNibbleOf[std::size_t(output % kInAWord)] & 15u);
}

class Awq final : public Quantization {
 public:
  explicit Awq(const Fields& settings);

  std::string method() const override { return "awq"; }
  std::vector<Activations> schemes() const override { return {{.weights = &formats::int4_asymmetric()}}; }
  std::vector<std::string> marks() const override { return {"qweight"}; }
  std::vector<std::string> other_parts() const override { return {"qzeros", "scales"}; }
  bool excludes(const std::string& module) const override { return excluded_.contains(module); }
  Weight unpack(const Parts& parts) const override;

 private:
  int group_;  // -1: all inputs
  ExcludedModules excluded_;
};

Awq::Awq(const Fields& settings)
    : group_(settings.integer_or(settings.has("q_group_size") ? "q_group_size" : "group_size", -1, 1 << 24, 128)),
      excluded_(settings, "modules_to_not_convert") {
  const char* bits = settings.has("w_bit") ? "w_bit" : "bits";
  if (settings.integer_or(bits, 1, 32, 4) != 4)
    settings.refuse(bits, "the supported one is 4; choose a checkpoint of it");
  if (group_ == 0) settings.refuse("group_size", "must be above 0, or -1 for all inputs; download config.json again");
  if (!settings.boolean_or("zero_point", true))
    settings.refuse("zero_point", "only true is supported; choose a checkpoint of it");
  for (const char* key : {"version", "checkpoint_format", "format"}) {  // AutoAWQ's, and GPTQModel's
    std::string layout = settings.string_or(key, "gemm");
    std::ranges::transform(layout, layout.begin(), [](unsigned char c) { return char(std::tolower(c)); });
    if (layout != "gemm") settings.refuse(key, "the supported one is \"gemm\"; choose a checkpoint of it");
  }
  refuse_settings_of_modules(settings);
}

Weight Awq::unpack(const Parts& parts) const {
  const std::int64_t group = group_ < 0 ? parts.in : group_;
  parts.expect_groups(group, "group_size");
  const std::int64_t groups = parts.in / group, words = (parts.out + kInAWord - 1) / kInAWord;
  const Tensor codes = parts.of("qweight", DType::i32, {parts.in, words}),
               zeros = parts.of("qzeros", DType::i32, {groups, words}),
               scales =
                   parts.numbers("scales", {groups, parts.out}, unpacking::greatest(formats::int4_asymmetric(), true));
  Weight w = unpacking::empty(parts, formats::int4_asymmetric());
  w.group = int(group);
  w.scales = Tensor::host({w.out, groups}, DType::f32);
  w.zeros = Tensor::host({w.out, groups}, DType::f32);
  // By words of 8 outputs, each of which is read once.
  in_parallel(words, kInAWord * w.in, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t last = std::min(w.out, end * kInAWord);
    for (std::int64_t o = begin * kInAWord; o < last; ++o) {
      for (std::int64_t i = 0; i < w.in; ++i) w.values.row<std::uint8_t>(o)[i] = code_of(codes.row<std::int32_t>(i), o);
      for (std::int64_t g = 0; g < groups; ++g) {
        w.scales.row<float>(o)[g] = scales.row<float>(g)[o];
        w.zeros.row<float>(o)[g] = float(int(code_of(zeros.row<std::int32_t>(g), o)) - 8);
      }
    }
  });
  return w;
}

}  // namespace

std::shared_ptr<const Quantization> read_awq(const Fields& settings) { return std::make_shared<Awq>(settings); }

}  // namespace foretoken
