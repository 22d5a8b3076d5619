// The message of any exception.
#pragma once
#include <exception>
#include <string>

namespace foretoken {

// The message of the exception that is being handled, or that terminates the process.
inline std::string thrown() {
  try {
    if (const std::exception_ptr e = std::current_exception()) std::rethrow_exception(e);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
  }
  return "something that is no std::exception";
}

}  // namespace foretoken
