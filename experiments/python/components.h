// Drafters and length policies that are written in Python, in the registries beside those in C++: one call of Python
// for each call of draft() or budgets(), whatever the batch. What they raise, or return of a wrong shape, fails the
// requests for which it does so again when it is called for them alone (Drafter::draft).
#pragma once
#include <memory>
#include <optional>
#include <string>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "experiments/python/draft_batch.h"
#include "framework/components/registry.h"

namespace foretoken::python {

namespace nb = nanobind;

// How a component was registered. JSON goes as text both ways.
struct Registration {
  std::string name, summary, source;
  std::string options;     // a list of {"name", "type", "standard", "meaning", "least", "most", "optional"}
  std::string examples;    // a list of options to test it with; "[]": the defaults alone
  std::string file, hash;  // where it was written, "": not known, and what tells it from another of its name
  nb::object make;         // (options, facts of the target and the device) -> the component
  nb::object traits;       // options -> what it states of itself
};

// Adds it, or puts it in the place of one from Python with its name. The name of another is an Error.
void register_drafter(const Registration& registration);
void register_policy(const Registration& registration);

// Adds bench_repeat() under this name, as if it came from Python.
void register_bench_drafter(const std::string& name);

// Built-in components and those from Python, as they are now.
Registries registries();
// The hash of the component from Python that this path stands for among the plugins of a complete run, as it is now.
std::optional<std::string> hash_from_python(const std::string& path);

// The outcomes of one step, for Drafter::observe: trees and what was emitted, behind one another.
struct OutcomeBatch {
  std::vector<std::uint64_t> ids;
  std::vector<std::int32_t> offsets{0}, tokens, parents;            // nodes of tree i: [offsets[i], offsets[i + 1])
  std::vector<std::int32_t> emitted_offsets{0}, emitted, accepted;  // accepted: nodes, of each tree
  std::vector<std::int32_t> ranks;                                  // [nodes of all, width]
  std::int32_t width = 0;
};

// The sequences of one call of LengthPolicy::budgets.
struct PolicyBatch {
  std::vector<std::uint64_t> ids;
  std::vector<std::int32_t> lengths, rounds, drafted, accepted, room_nodes, room_depth;
  std::vector<double> acceptance;
};

// One step, for observe_step() of a drafter and observe() of a policy.
struct StepBatch {
  std::vector<std::uint64_t> ids;
  std::vector<std::int32_t> drafted, tested, accepted, emitted;
  int rows = 0, waiting = 0, running = 0, recorded = 0;
  Phases phases;
};

}  // namespace foretoken::python
