#include "experiments/python/calls.h"

#include "framework/text/printable.h"

namespace foretoken::python {
namespace {

PyObject* error_class = nullptr;

// Where it was raised: " (mine.py, line 12)"; empty where that is not known.
std::string place_of(const nb::python_error& error) {
  try {
    const nb::object frames = nb::module_::import_("traceback").attr("extract_tb")(error.traceback());
    if (nb::len(frames) == 0) return "";
    const nb::object last = frames[nb::int_(-1)];
    return " (" + nb::cast<std::string>(last.attr("filename")) + ", line " +
           nb::cast<std::string>(nb::str(last.attr("lineno"))) + ")";
  } catch (const std::exception&) {
    return "";
  }
}

std::string text_of(nb::handle value) {
  try {
    return nb::cast<std::string>(nb::str(value));
  } catch (const std::exception&) {
    return "(what it says cannot be shown)";
  }
}

}  // namespace

void set_error_class(nb::handle error) { error_class = error.inc_ref().ptr(); }

std::string raised(const nb::python_error& error, const std::string& who, const std::string& where) {
  const std::string text = printable(text_of(error.value()));
  if (error_class && error.matches(error_class)) return text.starts_with(who) ? text : who + ": " + text;
  const std::string kind = text_of(error.type().attr("__name__"));
  return who + " raised " + kind + " in " + where + (text.empty() ? "" : ": " + text) + place_of(error);
}

}  // namespace foretoken::python
