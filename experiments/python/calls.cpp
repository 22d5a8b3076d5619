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
    return " (" + nb::cast<std::string>(last.attr("filename")) + ", line " + said(nb::object(last.attr("lineno"))) +
           ")";
  } catch (const std::exception&) {
    return "";
  }
}

}  // namespace

std::string said(nb::handle value) {
  const nb::object text = nb::steal(PyObject_Str(value.ptr()));
  const char* const bytes = text.is_valid() ? PyUnicode_AsUTF8(text.ptr()) : nullptr;
  if (bytes) return bytes;
  PyErr_Clear();
  return {};
}

std::string kind_of(nb::handle value) {
  const std::string kind = said(nb::object(value.type().attr("__name__")));
  return (kind.find_first_of("aeiouAEIOU") == 0 ? "an " : "a ") + kind;
}

void set_error_class(nb::handle error) { error_class = error.inc_ref().ptr(); }

std::string raised(const nb::python_error& error, const std::string& who, const std::string& where) {
  const std::string text = printable(said(error.value()));
  if (error_class && error.matches(error_class)) return text.starts_with(who) ? text : who + ": " + text;
  const std::string kind = said(nb::object(error.type().attr("__name__")));
  return who + " raised " + kind + " in " + where + (text.empty() ? "" : ": " + text) + place_of(error);
}

}  // namespace foretoken::python
