// bitsandbytes in 4 bits. MODULE.weight U8 [out * in / 2, 1]: codes of the matrix row after row, the first of two in
// the high half of a byte; MODULE.weight.absmax F32, one for each 64 of them; quant_map F32 [16], the number of each
// code; and the rest as JSON in the bytes of quant_state.bitsandbytes__nf4 or ...__fp4.
#include <cstring>

#include "experiments/quantize/stored_form.h"
#include "kernels/error.h"

namespace foretoken::stored {
namespace {

using nlohmann::json;

constexpr int kBlock = 64;

class FourBits final : public StoredForm {
 public:
  explicit FourBits(std::string type) : type_(std::move(type)) {}

  std::vector<StoredTensor> tensors(const std::string& module, const Weight& w) const override {
    if (w.group != kBlock)
      throw Error("the matrix '" + module + "' has " + std::to_string(w.in) +
                  " inputs, which do not divide into groups of 64, as bitsandbytes stores " + type_ +
                  "; choose another format");
    const std::string name = module + ".weight";
    const Tensor halves = Tensor::host({w.out * w.in / 2, 1}, DType::u8);
    for (std::int64_t i = 0; i < halves.elements(); ++i) {
      const auto* codes = w.values.data<std::uint8_t>() + 2 * i;
      halves.data<std::uint8_t>()[i] = std::uint8_t(codes[0] << 4 | codes[1]);
    }
    const std::string state =
        json{{"quant_type", type_}, {"blocksize", kBlock}, {"dtype", "bfloat16"}, {"shape", {w.out, w.in}}}.dump();
    return {stored_tensor(name, halves), stored_tensor(name + ".absmax", w.scales.reshaped({w.scales.elements()})),
            stored_tensor(name + ".quant_map", Tensor::host_copy<float>(w.format->numbers(), DType::f32)),
            stored_tensor(name + ".quant_state.bitsandbytes__" + type_,
                          Tensor::host_copy<char>(std::span<const char>(state), DType::u8))};
  }

  json config(const std::map<std::string, int>&, const SchemeFacts&) const override {
    return {{"quant_method", "bitsandbytes"},
            {"load_in_4bit", true},
            {"load_in_8bit", false},
            {"bnb_4bit_quant_type", type_},
            {"bnb_4bit_compute_dtype", "bfloat16"},
            {"bnb_4bit_quant_storage", "uint8"},
            {"bnb_4bit_use_double_quant", false},
            {"llm_int8_skip_modules", {"lm_head"}},
            {"llm_int8_threshold", 6.0},
            {"llm_int8_has_fp16_weight", false},
            {"llm_int8_enable_fp32_cpu_offload", false}};
  }

 private:
  std::string type_;
};

}  // namespace

const std::map<std::string, const StoredForm*>& bitsandbytes() {
  static const FourBits nf4("nf4"), fp4("fp4");
  static const std::map<std::string, const StoredForm*> all = {{"nf4", &nf4}, {"fp4", &fp4}};
  return all;
}

}  // namespace foretoken::stored
