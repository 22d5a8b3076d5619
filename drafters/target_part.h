// Drafters whose model is the target or a part of it, on a view of the target's cache: what they share. This module
// must not know which sublayers or pages are left out, or why.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "drafters/growth.h"

namespace foretoken {

// The part is the same for all engines of a sweep, so that its forwards are recorded once.
std::shared_ptr<Model> kept_part(const LeftOut& left_out, Host& host);

Needs part_needs(const nlohmann::json& options, const std::string& drafter, const ModelInfo& target);
// `chosen`: what it reads of the target's cache; empty: all.
OwnModel part_model(const LeftOut& left_out, Host& host, PageChoice chosen = {});
std::unique_ptr<Drafter> part_drafter(const nlohmann::json& options, const std::string& drafter,
                                      const LeftOut& left_out, Host& host, PageChoice chosen = {});

}  // namespace foretoken
