// What the names in tokenizer.ggml.pre mean: the parts of the tokenizer.json that each stands for. A name is all that a
// GGUF file says of how text is split into words. This module must not know files.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace foretoken {

struct NamedPreTokenizer {
  nlohmann::json normalizer, pre_tokenizer;  // as in a tokenizer.json
  bool ignore_merges = false;                // a word of the vocabulary is that token
  bool begins = false;                       // a text begins with the bos token, unless the file says otherwise
};

const std::vector<std::string>& pre_tokenizer_names();
// The name must be known.
NamedPreTokenizer named_pre_tokenizer(const std::string& name);

}  // namespace foretoken
