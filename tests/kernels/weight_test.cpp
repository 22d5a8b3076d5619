// The bytes that a weight reports after a backend has prepared it.
#include <gtest/gtest.h>

#include "kernels/cpu/operations.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/scenario.h"

namespace foretoken::test {
namespace {

constexpr std::int64_t kOut = 3 * kPanel, kIn = 64;  // whole panels: no padding

std::int64_t bytes(Backend& backend, DType type) { return backend.prepare(random_weight(kOut, kIn, type, 3)).bytes(); }

TEST(PreparedWeight, ReportsTheBytesThatAProductOfTheReferenceReads) {
  ReferenceBackend reference;  // multiplies in f32, whatever the stored type
  for (const DType type : {DType::f32, DType::bf16, DType::f16, DType::i8})
    EXPECT_EQ(bytes(reference, type), 4 * kOut * kIn) << name_of(type);
}

TEST(PreparedWeight, ReportsTheBytesThatAProductOfTheCpuReads) {
  for (const std::string& instructions : cpu_instructions()) {
    const auto cpu = make_cpu_backend(1, instructions);
    EXPECT_EQ(bytes(*cpu, DType::f32), 4 * kOut * kIn) << instructions;
    EXPECT_EQ(bytes(*cpu, DType::bf16), 2 * kOut * kIn) << instructions;
    EXPECT_EQ(bytes(*cpu, DType::f16), 4 * kOut * kIn) << instructions << " widens f16";
    EXPECT_EQ(bytes(*cpu, DType::i8), kOut * kIn + kOut * kIn / 32 * 4) << instructions << ": a scale a group";
    EXPECT_EQ(cpu->prepare(random_weight(1, 1, DType::f32, 3)).bytes() % 64, 0)
        << instructions << " reads whole panels";
  }
}

TEST(PreparedWeight, CountsItsBias) {
  ReferenceBackend reference;
  Weight w = random_weight(kOut, kIn, DType::f32, 3);
  const std::int64_t matrix = reference.prepare(w).bytes();
  w.bias = random_tensor({1, kOut}, 8).reshaped({kOut});
  EXPECT_EQ(reference.prepare(w).bytes(), matrix + 4 * kOut);
}

// A model of gigabytes must not be in memory twice, as stored and as prepared.
TEST(PreparedWeight, DropsTheValuesThatNobodyReadsAgain) {
  ReferenceBackend reference;
  const auto cpu = make_cpu_backend(1, "");
  for (Backend* backend : {static_cast<Backend*>(&reference), cpu.get()})
    for (const DType type : {DType::bf16, DType::i8}) {
      const Weight w = backend->prepare(random_weight(kOut, kIn, type, 3));
      EXPECT_FALSE(w.values || w.scales || w.zeros) << backend->name();
      EXPECT_TRUE(bool(w));
    }
}

}  // namespace
}  // namespace foretoken::test
