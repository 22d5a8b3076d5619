// Assigns a component's exception to requests. A component is called for a whole batch. If it throws, it is called for
// each request of the batch alone, and the requests for which it throws again fail, each with its own reason. If it
// throws for none of them alone, no request fails, and the first exception is thrown on. This module must not know what
// the components compute.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "framework/decode/sequence.h"

namespace foretoken {

// One message per request; empty where the request did not fail.
using Failures = std::vector<std::string>;

// To be called inside the catch block of the exception that `who` threw for `count` requests together. `call_alone(i)`
// calls it for request i.
Failures failures_alone(int count, const std::string& who, const std::function<void(int)>& call_alone);

// The message for the exception that is being handled: that of an Error as it is, of any other with the name `who`.
// Rethrows std::bad_alloc, which is no request's failure.
std::string failure_of(const std::string& who);

// "for sequence 3 the drafter 'x' ...", of the message "the drafter 'x' ..." about what a component returned.
std::string for_sequence(SequenceId id, const std::string& message);

}  // namespace foretoken
