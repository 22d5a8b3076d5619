#include "framework/engine/failures.h"

#include <algorithm>
#include <exception>
#include <new>

#include "framework/components/thrown.h"
#include "kernels/error.h"

namespace foretoken {

Failures failures_alone(int count, const std::string& who, const std::function<void(int)>& call_alone) {
  const std::exception_ptr first_exception = std::current_exception();
  Failures failures(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    try {
      call_alone(i);
    } catch (...) {
      failures[std::size_t(i)] = failure_of(who);
    }
  }
  const auto succeeded = std::ranges::count_if(failures, &std::string::empty);
  if (succeeded == count) std::rethrow_exception(first_exception);
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

std::string for_sequence(SequenceId id, const std::string& message) {
  return "for sequence " + std::to_string(id) + " " + message;
}

}  // namespace foretoken
