// Whom a component failed for. Components are asked about a whole batch; where one throws, it is asked about each
// request of the batch alone, and those fail for which it throws again, each with its own reason. Where it throws for
// none of them alone, no request is at fault: what it threw goes up.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace foretoken {

// Why each of several requests failed; empty for one that did not.
using Failures = std::vector<std::string>;

// To be called in the handler of what `who` threw for `count` requests at once. `ask_alone(i)` asks it about request i.
Failures failures_alone(int count, const std::string& who, const std::function<void(int)>& ask_alone);

// Of the exception that is being handled: an Error is a sentence already, whatever else was thrown is laid to `who`. A
// lack of memory is nobody's failure and goes up.
std::string failure_of(const std::string& who);

}  // namespace foretoken
