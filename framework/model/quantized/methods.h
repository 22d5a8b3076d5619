// The methods by which checkpoints are quantized, each in a file of its own. `settings`: quantization_config.
#pragma once
#include "framework/model/quantized/quantization.h"

namespace foretoken {

std::shared_ptr<const Quantization> read_gptq(const Fields& settings);
std::shared_ptr<const Quantization> read_awq(const Fields& settings);
std::shared_ptr<const Quantization> read_bitsandbytes(const Fields& settings);
std::shared_ptr<const Quantization> read_fp8(const Fields& settings);
std::shared_ptr<const Quantization> read_compressed_tensors(const Fields& settings);
std::shared_ptr<const Quantization> read_mxfp4(const Fields& settings);

}  // namespace foretoken
