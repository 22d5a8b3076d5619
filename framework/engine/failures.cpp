#include "framework/engine/failures.h"

#include <algorithm>
#include <exception>
#include <new>

#include "framework/components/thrown.h"
#include "kernels/error.h"

namespace foretoken {

Failures failures_alone(int count, const std::string& who, const std::function<void(int)>& ask_alone) {
  const std::exception_ptr thrown_at_first = std::current_exception();
  Failures failures(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    try {
      ask_alone(i);
    } catch (...) {
      failures[std::size_t(i)] = failure_of(who);
    }
  }
  const auto fine = std::ranges::count_if(failures, &std::string::empty);
  if (fine == count) std::rethrow_exception(thrown_at_first);
  return failures;
}

std::string failure_of(const std::string& who) {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const Error& e) {
    return e.what();
  } catch (...) {
    return who + " failed for this request: " + thrown();
  }
}

}  // namespace foretoken
