// The module foretoken._core. What it offers is for the package around it (experiments/python/foretoken), which has
// what users meet.
#include <memory>

#include <nanobind/nanobind.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "experiments/python/arrays.h"
#include "experiments/python/bindings.h"
#include "experiments/python/calls.h"
#include "foretoken_version.h"
#include "kernels/error.h"

namespace nb = nanobind;

namespace foretoken::python {
namespace {

void log_to_stderr() {
  auto logger = std::make_shared<spdlog::logger>("foretoken", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("foretoken: %v");
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace
}  // namespace foretoken::python

NB_MODULE(_core, m) {
  using namespace foretoken;  // NOLINT(google-build-using-namespace): what this file is about
  m.doc() = "The compiled part of the package foretoken.";
  nb::set_leak_warnings(false);  // an interpreter may end while a variable still holds an engine
  python::load_numpy();
  python::log_to_stderr();
  const nb::exception<Error> error(m, "Error", PyExc_RuntimeError);
  error.attr("__module__") = "foretoken";
  error.attr("__doc__") = "What went wrong, where, and what to do about it, in one sentence.";
  python::set_error_class(error);
  m.attr("version") = kVersion;
  m.attr("commit") = kCommit;
  m.attr("source_directory") = kSourceDirectory;
  python::bind_engine(m);
  python::bind_components(m);
  python::bind_experiments(m);
}
