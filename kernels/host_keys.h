// Keys of a cache in host memory.
#pragma once
#include <cstddef>

#include "kernels/layout.h"

namespace foretoken {

// The key of a kv head in row `row` of a page, f32 [head_size]; of codes, times their scale.
void read_key(const KvLayer& kv, const std::byte* page, int row, int head, float* to);

}  // namespace foretoken
