// What form the outputs of a request must have, as OpenAI's API writes it: {"type": "text"}, {"type": "json_object"},
// {"type": "json_schema", "json_schema": {"schema": {...}}}, and, beyond it, {"type": "regex", "pattern": "..."}.
// This module must not know engines.
#pragma once
#include <memory>
#include <span>

#include <nlohmann/json.hpp>

#include "framework/decode/constraint.h"
#include "framework/text/tokenizer.h"

namespace foretoken {

// Throws Error unless `format` is null or one of these, of a grammar that can be computed.
void expect_response_format(const nlohmann::json& format);
// Null for null and for text. Those that were made last are kept with what they have learned, for all users of the
// process. `ends`: the tokens that end an output.
std::shared_ptr<const Constraint> constraint_of(const nlohmann::json& format,
                                                const std::shared_ptr<const Tokenizer>& tokenizer,
                                                std::span<const Token> ends);

}  // namespace foretoken
