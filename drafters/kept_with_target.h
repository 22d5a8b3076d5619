// What a drafter makes of the target and of options, and all engines of a sweep share: a head, or a part of the target.
// This module must not know what it is.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "framework/components/host.h"

namespace foretoken {

// What `make` made when it was first asked for on this device, with this target, which lives as long. `what` and
// `options`: all that it depends on besides.
template <class T> std::shared_ptr<T> kept_with_target(const std::string& what, const std::string& options, Host& host,
                                                       const std::function<std::shared_ptr<T>()>& make) {
  struct Kept {
    std::shared_ptr<T> made;
    std::shared_ptr<Model> target;
  };
  const auto target = host.target_model();
  const std::string key = what + " " + options + " of " + std::to_string(target->serial());
  return host.keep<Kept>(key, [&] { return std::make_shared<Kept>(Kept{make(), target}); })->made;
}

}  // namespace foretoken
