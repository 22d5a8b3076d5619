// Texts that end a request, as a stop rule over tokens. This module must not know who generates the tokens.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/decode/sequence.h"
#include "framework/text/tokenizer.h"

namespace foretoken {

// The sequence ends with the token that completes the first of `stops`, like a stop token, wherever rounds cut the
// text. One rule per request; without any text the rule is empty.
StopRule stop_at(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stops);

}  // namespace foretoken
