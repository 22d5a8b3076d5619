// Calls into Python: what it raises becomes an Error of one sentence that says who, where and why.
#pragma once
#include <string>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "kernels/error.h"

namespace foretoken::python {

namespace nb = nanobind;

// What str() gives; empty where it raises. Needs the interpreter's lock, as everything here.
std::string said(nb::handle value);
// Of what type it is: "a list", "an int".
std::string kind_of(nb::handle value);
// "ValueError: no such thing (mine.py, line 12)"; of an Error of this project its sentence alone.
std::string raised(const nb::python_error& error, const std::string& who, const std::string& where);
// The class foretoken.Error, made when the module is loaded.
void set_error_class(nb::handle error);

// `call()`; `who`: "the drafter 'mine'", `where`: the name of the method.
template <class F> auto calling(const std::string& who, const char* where, const F& call) {
  try {
    return call();
  } catch (const nb::python_error& e) {
    throw Error(raised(e, who, where));
  } catch (const nb::cast_error&) {
    throw Error(who + " returned something else than it must in " + where + "; its page says what");
  } catch (const nb::builtin_exception& e) {
    throw Error(who + " failed in " + where + ": " + e.what());
  }
}

}  // namespace foretoken::python
