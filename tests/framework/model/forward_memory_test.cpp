// ForwardMemories: returned memory is lent again, never to two users at once or to another backend.
#include "framework/model/forward_memory.h"

#include <gtest/gtest.h>

#include "kernels/reference/reference_backend.h"

namespace foretoken::test {
namespace {

TEST(ForwardMemories, returned_memory_is_lent_again) {
  ReferenceBackend backend;
  ForwardMemories memories;
  auto first = memories.lend(backend), second = memories.lend(backend);
  const ForwardMemory *a = first.get(), *b = second.get();
  EXPECT_NE(a, b);
  for (const bool last_first : {true, false}) {  // as members are destroyed, and as the elements of a vector are
    (last_first ? second : first).reset();
    first.reset(), second.reset();
    first = memories.lend(backend), second = memories.lend(backend);
    EXPECT_EQ(first.get(), a);
    EXPECT_EQ(second.get(), b);
  }
}

TEST(ForwardMemories, another_backend_gets_new_memory) {
  ForwardMemories memories;
  auto one = std::make_unique<ReferenceBackend>();
  const std::uint64_t serial = one->serial();
  memories.lend(*one)->logits.push_back(one->allocate({1, 8}, DType::f32));
  EXPECT_EQ(memories.lend(*one)->logits.size(), 1u);
  one.reset();
  ReferenceBackend other;  // perhaps at the same address
  const auto lent = memories.lend(other);
  EXPECT_NE(lent->backend, serial);
  EXPECT_TRUE(lent->logits.empty());
}

TEST(ForwardMemories, lent_memory_outlives_its_owner) {
  ReferenceBackend backend;
  std::shared_ptr<ForwardMemory> lent;
  {
    ForwardMemories memories;
    lent = memories.lend(backend);
  }
  lent->staging.begin(100);
  EXPECT_NE(lent->staging.device_address(), nullptr);
}

}  // namespace
}  // namespace foretoken::test
