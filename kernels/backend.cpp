#include "kernels/backend.h"

#include <chrono>

namespace foretoken {

double host_clock() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Mirror Backend::mirror(std::int64_t bytes) {
  const Tensor memory = Tensor::host({bytes}, DType::u8);
  return {memory, memory};
}

Mark Backend::mark() { return {host_clock(), -1}; }

}  // namespace foretoken
