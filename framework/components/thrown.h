// The message of any exception.
#pragma once
#include <exception>
#include <string>

namespace foretoken {

// The message of the exception that is being handled, or that terminates the process.
inline std::string thrown() {
  const std::string other = "something that is no std::exception";
  try {
    if (const std::exception_ptr e = std::current_exception()) std::rethrow_exception(e);
    return other;
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return other;
  }
}

}  // namespace foretoken
