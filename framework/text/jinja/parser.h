// The tree of a template's source. This module must not know values of variables.
#pragma once
#include <string>
#include <string_view>

#include "framework/text/jinja/node.h"

namespace foretoken::jinja {

// A node `block`. Errors name `where` and the line.
NodePtr parse_template(std::string_view source, const std::string& where);

}  // namespace foretoken::jinja
