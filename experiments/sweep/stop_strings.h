// Stop strings as a stop rule over tokens. This module must not know how tokens are generated.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/decode/sequence.h"
#include "framework/text/tokenizer.h"

namespace foretoken {

// The sequence ends with the token that completes the first of `stops`, like a stop token, wherever rounds divide the
// output. One rule per request; without stop strings the rule is empty.
StopRule stop_at(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stops);

}  // namespace foretoken
