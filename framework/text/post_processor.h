// The tokens that are put around every text ("<s>" before it). This module must not know how text becomes tokens.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "kernels/distribution.h"  // Token

namespace foretoken {

struct PostProcessor {
  std::vector<Token> before, after;

  // `spec` is "post_processor" of a tokenizer.json: null, ByteLevel (which changes offsets only, not ids),
  // TemplateProcessing, or a Sequence of these. Others are an Error that names them.
  static PostProcessor load(const nlohmann::json& spec, const std::string& where);
};

}  // namespace foretoken
