// One entry of "config_groups" of compressed-tensors, or its "sparsity_config": how the matrices of some modules are
// stored, and how their inputs are rounded. This module must not know the tensors themselves.
#pragma once
#include <string>

#include "framework/model/quantized/module_names.h"
#include "framework/model/quantized/quantization.h"

namespace foretoken {

struct CompressedScheme {
  enum class Layout : std::uint8_t {
    packed,        // pack-quantized: integers in 32-bit words
    integers,      // int-quantized: one byte each
    floats,        // float-quantized: e4m3
    microscaling,  // mxfp4-pack-quantized
    sparse,        // sparse-24-bitmask: bf16 numbers
  };
  enum class Strategy : std::uint8_t { tensor, channel, group, block };

  ModuleTargets targets;
  Layout layout = Layout::packed;
  Strategy strategy = Strategy::tensor;
  int bits = 8;
  bool symmetric = true;
  int group = 0;                            // inputs that share a scale; Strategy::group
  int block_outputs = 0, block_inputs = 0;  // Strategy::block
  Activations activations;

  // `format`: of the whole configuration, for groups without one of their own.
  static CompressedScheme read(const Fields& group, const std::string& format);
  // `sparsity`: of the format sparse-24-bitmask.
  static CompressedScheme read_sparse(const Fields& sparsity);
  const WeightFormat& format() const;
};

}  // namespace foretoken
