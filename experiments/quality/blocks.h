// Whether a format can round a model's matrices, by their shapes, before any weight is read. This module must not know
// what is rounded for.
#pragma once
#include <string>

#include "framework/model/config.h"
#include "kernels/formats/format.h"

namespace foretoken {

// The blocks of the format divide every matrix of the layers, or an Error names one that they do not. `remedy`: what
// the user is told to do.
void expect_blocks(const ModelConfig& config, const WeightFormat& format, const std::string& remedy);

}  // namespace foretoken
