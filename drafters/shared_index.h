// Options of drafters that remember what they saw: "index", for each request alone or for all of an engine, and "keep",
// beyond the engine. This module must not know what they remember.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "framework/components/host.h"

namespace foretoken {

// Whether the option "index" is "shared"; an Error where it is neither that nor "request".
bool shares_index(const nlohmann::json& options, const std::string& drafter);
// Of what is remembered of this target: the same for all engines of a sweep.
std::string key_of_index(const std::string& what, const ModelInfo& target);
// "keep" without a shared index is an Error.
void expect_shared_to_keep(const nlohmann::json& options, const std::string& drafter);

// What all requests of the engine share, and with "keep" all engines that ask for `what`, of which it must tell
// everything that it depends on besides the target; it then locks itself. Null where each request has its own.
template <class T> std::shared_ptr<T> shared_index(const nlohmann::json& options, const std::string& drafter,
                                                   const std::string& what, Host& host,
                                                   const std::function<std::shared_ptr<T>()>& make) {
  expect_shared_to_keep(options, drafter);
  if (!shares_index(options, drafter)) return nullptr;
  if (!options.at("keep").template get<bool>()) return make();
  struct Kept {
    std::shared_ptr<T> index;
  };
  return host.keep<Kept>(key_of_index(what, host.target()), [&] { return std::make_shared<Kept>(Kept{make()}); })
      ->index;
}

}  // namespace foretoken
