// What module.cpp puts together: each adds its part to the module foretoken._core. Documents and reports are JSON, as
// text; the Python side of the package gives them their form.
#pragma once
#include <nanobind/nanobind.h>

namespace foretoken::python {

void bind_engine(nanobind::module_& m);
void bind_components(nanobind::module_& m);
void bind_experiments(nanobind::module_& m);

}  // namespace foretoken::python
