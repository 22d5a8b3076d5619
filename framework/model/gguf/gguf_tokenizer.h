// The tokenizer of a GGUF file, written as the tokenizer.json of the same model: one reader knows what its parts mean.
// This module must not know weights.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/model/gguf/gguf_metadata.h"
#include "framework/text/tokenizer.h"

namespace foretoken {

// tokenizer.ggml.model "gpt2" (byte-level BPE, whose rule for words is named by tokenizer.ggml.pre) and "llama"
// (SentencePiece's BPE: scores in place of merges). Others are an Error that names them.
std::shared_ptr<const Tokenizer> gguf_tokenizer(const GgufMetadata& metadata);

}  // namespace foretoken
