// What the headers of kernels/cpu expect of the file that includes them (kernels/cpu/vectors.h), so that each can be
// read alone.
#pragma once
#include <cstddef>
#include <cstdint>

namespace foretoken {
namespace {

constexpr int kWidth = 8;
typedef float Floats __attribute__((vector_size(4 * kWidth)));
Floats fused(Floats a, Floats b, Floats c);
Floats widen(const std::uint16_t* p);
Floats bytes(const std::byte* p);
Floats integers(const std::byte* p);
Floats e4m3(const std::byte* p);

}  // namespace
}  // namespace foretoken
