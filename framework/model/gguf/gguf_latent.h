// DeepSeek-V2 and V3 in a GGUF file ("deepseek2"): latent attention, and how rows choose their experts. This module
// must not know other families.
#pragma once
#include <string>

#include "framework/model/config.h"
#include "framework/model/gguf/gguf_file.h"

namespace foretoken {

// Whether this is a key of such files alone, behind the architecture.
bool is_latent_key(const std::string& key);
// The sizes of heads, c.heads is known; and c.rope_scaling's factors, once its rule is.
void read_gguf_latent(const GgufFile& file, const std::string& prefix, ModelConfig& c);
void scale_gguf_latent(const GgufFile& file, const std::string& prefix, ModelConfig& c);
// What the scores of c.mixture are made of, and the expert that all rows use.
void read_gguf_routing(const GgufFile& file, const std::string& prefix, ModelConfig& c);
// The name of a tensor of a layer by its name there, "attn_kv_b.weight"; "": such a layer has none of its own.
std::string latent_name(const std::string& own);

}  // namespace foretoken
