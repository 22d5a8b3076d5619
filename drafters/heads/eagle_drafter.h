// A drafter with a head of the EAGLE family: what `eagle` and `eagle3` share.
#pragma once
#include <string>

#include "framework/components/registry.h"

namespace foretoken {

// `generation`: EagleForm::generation; a head of another one is an Error that names the drafter for it.
Entry<Drafter> eagle_entry(const std::string& name, int generation, const std::string& summary,
                           const std::string& source);

}  // namespace foretoken
