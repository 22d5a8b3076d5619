// The Error of memory that a machine or a device does not have. Callers that can do without the memory catch it; who
// knows what its user can lower says that in place of the general remedy. This module must not know who asked for the
// memory.
#pragma once
#include <cstdint>
#include <string>

#include "kernels/error.h"

namespace foretoken {

class OutOfMemory : public Error {
 public:
  // `cause`: how much is lacking, and where.
  explicit OutOfMemory(const std::string& cause)
      : Error(cause + "; use a smaller batch, KV pool or model"), cause_(cause) {}
  static OutOfMemory on_host(std::uint64_t bytes) {
    return OutOfMemory("out of memory: could not allocate " + std::to_string(bytes) + " bytes on the host");
  }
  const std::string& cause() const { return cause_; }  // without a remedy

 private:
  std::string cause_;
};

}  // namespace foretoken
