// Drafters, policies and verifiers that somebody else wrote: whatever they throw becomes an Error that says whose fault
// it is. An Error of theirs is a sentence for users already, and passes; so does a lack of memory. It must not know
// what they do.
#pragma once
#include <string>

#include "framework/components/registry.h"

namespace foretoken {

// The same component, for whom `who` speaks: "the drafter 'bigram' of the plugin lib.so". Whatever virtual function a
// component has, its wrapper in named_faults.cpp has too.
std::unique_ptr<Drafter> naming_faults(std::unique_ptr<Drafter> drafter, const std::string& who);
std::unique_ptr<LengthPolicy> naming_faults(std::unique_ptr<LengthPolicy> policy, const std::string& who);
std::unique_ptr<Verifier> naming_faults(std::unique_ptr<Verifier> verifier, const std::string& who);

// Runs inside a catch block: throws what is in flight if it may pass, else an Error: "WHO failed in WHERE: ...".
[[noreturn]] void name_fault(const std::string& who, const char* where);

// Calls what somebody else wrote.
template <class F> decltype(auto) naming_faults(const std::string& who, const char* where, const F& call) {
  try {
    return call();
  } catch (...) {
    name_fault(who, where);
  }
}

// An entry whose maker and whatever it makes name their faults.
template <class T> Entry<T> naming_faults(Entry<T> entry, const std::string& who) {
  entry.make = [make = std::move(entry.make), who](const nlohmann::json& options, Host& host) {
    auto made = naming_faults(who, "Entry::make", [&] { return make(options, host); });
    return made ? naming_faults(std::move(made), who) : nullptr;
  };
  if (entry.traits)
    entry.traits = [traits = std::move(entry.traits), who](const nlohmann::json& options, const ModelInfo& target) {
      return naming_faults(who, "Entry::traits", [&] { return traits(options, target); });
    };
  return entry;
}

}  // namespace foretoken
