// DeepSeek-V2 and V3 in a config.json: latent attention, and how rows choose their experts. This module must not know
// other families.
#pragma once
#include "framework/model/config.h"
#include "framework/text/json_file.h"

namespace foretoken {

// The sizes of heads; m has the other sizes. What latent attention does not compute is an Error that names its key.
void read_latent(const Fields& config, bool third, ModelConfig& m);
// Which of x.experts a row uses, the expert that all use, and which of the layers are dense.
void read_routing(const Fields& config, bool third, int layers, MixtureConfig& x);

}  // namespace foretoken
