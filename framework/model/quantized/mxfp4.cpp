// MXFP4 (OCP Microscaling Formats 1.0) as GPT-OSS names its tensors, for linear modules. MODULE.weight_blocks U8 [out,
// in / 32, 16], two codes a byte, the lower nibble first; weight_scales U8 [out, in / 32], exponents plus 127.
#include "framework/model/quantized/methods.h"
#include "framework/model/quantized/microscaling.h"
#include "framework/model/quantized/module_names.h"
#include "framework/text/json_file.h"
#include "kernels/formats/formats.h"

namespace foretoken {
namespace {

class Mxfp4 final : public Quantization {
 public:
  explicit Mxfp4(const Fields& settings) : excluded_(settings, "modules_to_not_convert") {}

  std::string method() const override { return "mxfp4"; }
  std::vector<Activations> schemes() const override { return {{.weights = &formats::mxfp4()}}; }
  std::vector<std::string> marks() const override { return {"weight_blocks"}; }
  std::vector<std::string> other_parts() const override { return {"weight_scales"}; }
  bool excludes(const std::string& module) const override { return excluded_.contains(module); }
  Weight unpack(const Parts& parts) const override {
    parts.expect_groups(microscaling::kGroup, "quant_method mxfp4");
    const std::int64_t groups = parts.in / microscaling::kGroup;
    return microscaling::unpack(
        parts, parts.of("weight_blocks", DType::u8, {parts.out, groups, microscaling::kGroup / 2}), "weight_scales");
  }

 private:
  ExcludedModules excluded_;
};

}  // namespace

std::shared_ptr<const Quantization> read_mxfp4(const Fields& settings) { return std::make_shared<Mxfp4>(settings); }

}  // namespace foretoken
