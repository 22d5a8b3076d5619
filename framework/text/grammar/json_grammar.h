// JSON, and what a JSON schema describes, as grammars. The language of a schema is a part of what the schema allows:
// objects have the properties that it lists, in the order of "required", then the others by name; numbers have at most
// 18 digits before the point; whitespace is one space, or a line break with spaces behind it, where JSON allows it.
// This module must not know tokens.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "framework/text/grammar/grammar.h"

namespace foretoken {

Grammar::Part json_object_part(Grammar& grammar);  // any object
// Keywords: type, properties, required, additionalProperties, items, prefixItems, minItems, maxItems, enum, const,
// anyOf, allOf of one, $ref within the schema, $defs; of strings pattern, minLength, maxLength and format (date, time,
// date-time, uuid); of integers minimum, maximum and their exclusive forms; and those that only describe. An Error
// names another one, and where it stands.
Grammar::Part json_schema_part(Grammar& grammar, const nlohmann::json& schema);

}  // namespace foretoken
