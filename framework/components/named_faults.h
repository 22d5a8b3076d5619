// Wraps components: any exception that they throw becomes an Error whose message names the component and the function.
// An Error passes unchanged, since its message is for users already, unless errors are to be named too; so does
// std::bad_alloc. This module must not know what the components do.
#pragma once
#include <string>

#include "framework/components/registry.h"

namespace foretoken {

// Who is to be named.
struct Blamed {
  Blamed(std::string name, bool of_errors = false) : who(std::move(name)), errors(of_errors) {}
  std::string who;  // in messages: "the drafter 'bigram' of the plugin lib.so"
  bool errors;      // in the messages of Errors, too, that do not name it
};

// A wrapper that forwards every virtual function to the component. A virtual function that is added to a component must
// be added to its wrapper, too.
std::unique_ptr<Drafter> naming_faults(std::unique_ptr<Drafter> drafter, const Blamed& who);
std::unique_ptr<LengthPolicy> naming_faults(std::unique_ptr<LengthPolicy> policy, const Blamed& who);
std::unique_ptr<Verifier> naming_faults(std::unique_ptr<Verifier> verifier, const Blamed& who);

// To be called inside a catch block: rethrows the current exception if it passes unchanged, else throws an Error: "WHO
// failed in WHERE, which threw: ...", or, of an Error, "WHO failed in WHERE: ...".
[[noreturn]] void name_fault(const Blamed& who, const char* where);

// Calls a component's function, and names its faults.
template <class F> decltype(auto) naming_faults(const Blamed& who, const char* where, const F& call) {
  try {
    return call();
  } catch (...) {
    name_fault(who, where);
  }
}

// The entry with its maker, its traits and every component that it makes wrapped.
template <class T> Entry<T> naming_faults(Entry<T> entry, const Blamed& who) {
  entry.make = [make = std::move(entry.make), who](const nlohmann::json& options, Host& host) {
    auto made = naming_faults(who, "Entry::make", [&] { return make(options, host); });
    return made ? naming_faults(std::move(made), who) : nullptr;
  };
  entry.traits = [traits = std::move(entry.traits), who](const nlohmann::json& options, const ModelInfo& target) {
    return naming_faults(who, "Entry::traits", [&] { return traits(options, target); });
  };
  return entry;
}

}  // namespace foretoken
