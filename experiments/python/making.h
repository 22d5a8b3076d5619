// What makers of components from Python share. This module must not know drafters or policies.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include "experiments/python/components.h"

namespace foretoken::python {

// An object that may be copied and freed on any thread, with or without the interpreter's lock.
std::shared_ptr<nb::object> kept(nb::object object);
// The bound method of this name; an invalid object where there is none, or where it is None.
nb::object method_of(const nb::object& self, const char* name);
// "[3, 4]".
std::string shape_text(const std::vector<std::size_t>& shape);

std::vector<Option> options_of(const Registration& r);
// What traits() returns for options.
std::function<nlohmann::json(const nlohmann::json& options)> stated_by(const Registration& r, const std::string& who);
// The component; under the interpreter's lock.
nb::object made(const nb::object& make, const nlohmann::json& options, Host& host, const std::string& who);
std::shared_ptr<StepBatch> step_of(const StepReport& report);

// What stands for the component among the plugins of a run, so that a result says what measured it.
std::string file_of(const Registration& r, const std::string& kind);
// Registers the entry, and its file.
template <class T> void put(Registry<T> Registries::* kind, const Registration& r, Entry<T> entry);

}  // namespace foretoken::python
