// The drafter of foretoken.bench_component in C++: beside it stands the same one in Python.
#pragma once
#include "framework/components/host.h"
#include "framework/components/registry.h"

namespace foretoken {

Entry<Drafter> bench_repeat();

}  // namespace foretoken
