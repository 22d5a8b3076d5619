// adjust on the GPU: the bits of the reference, with adjusted rows, unchanged rows, and more rows than fit one launch.
#include <gtest/gtest.h>

#include "tests/kernels/adjustments.h"
#include "tests/kernels/cuda/gpu.h"

namespace foretoken::test {
namespace {

template <class T> const T* sent(Backend& backend, const std::vector<T>& v, std::vector<Tensor>& kept) {
  if (v.empty()) return nullptr;
  Tensor host = Tensor::host({std::int64_t(v.size() * sizeof(T))}, DType::u8);
  std::memcpy(host.raw(), v.data(), v.size() * sizeof(T));
  kept.push_back(backend.upload(host));
  return reinterpret_cast<const T*>(kept.back().raw());
}

TEST(AdjustOnTheGpu, rows_have_the_bits_of_the_reference) {
  const auto cuda = make_gpu({}), reference = make_reference_backend();
  for (const int vocab : {1, 2, 300, 4097, 32000})
    for (const int rows : {1, 9, 64, 150}) {
      if (vocab > 10000 && rows > 9) continue;
      const AdjustmentScenario scenario(vocab, rows, unsigned(vocab + rows));
      std::vector<Tensor> kept;
      std::vector<Adjustment> there = scenario.adjustments;
      for (int r = 0; r < rows; ++r) {
        there[std::size_t(r)].token_counts = sent(*cuda, scenario.token_counts(r), kept);
        there[std::size_t(r)].path = sent(*cuda, scenario.path(r), kept);
      }
      const Tensor device = cuda->upload(scenario.logits), truth = copy_of(scenario.logits),
                   found = Tensor::host(scenario.logits.shape(), DType::f32);
      cuda->adjust(device, there);
      reference->adjust(truth, scenario.adjustments);
      cuda->copy(device, found);
      EXPECT_EQ(std::memcmp(found.raw(), truth.raw(), std::size_t(truth.bytes())), 0)
          << "vocabulary " << vocab << ", " << rows << " rows";
      EXPECT_TRUE(vocab <= 2 || std::memcmp(found.raw(), scenario.logits.raw(), std::size_t(truth.bytes())) != 0)
          << "no logit was adjusted";
    }
}

TEST(AdjustOnTheGpu, masks_are_those_of_the_reference) {
  const auto cuda = make_gpu({}), reference = make_reference_backend();
  for (const int vocab : {1, 33, 300, 32000, 128256})
    for (const int rows : {1, 9, 64, 150}) {
      if (vocab > 10000 && rows > 9) continue;
      const Tensor logits = random_tensor({rows, vocab}, unsigned(vocab + rows), 3);
      std::mt19937 engine{unsigned(vocab)};
      std::vector<std::vector<std::uint32_t>> bits;
      std::vector<Tensor> kept;
      std::vector<const std::uint32_t*> here, there;
      for (int r = 0; r < rows; ++r) {
        bits.emplace_back(std::size_t(vocab + 31) / 32);
        for (std::uint32_t& word : bits.back()) word = engine();
        there.push_back(r % 4 == 3 ? nullptr : sent(*cuda, bits.back(), kept));
      }
      for (int r = 0; r < rows; ++r) here.push_back(r % 4 == 3 ? nullptr : bits[std::size_t(r)].data());
      const Tensor device = cuda->upload(logits), truth = copy_of(logits),
                   found = Tensor::host(logits.shape(), DType::f32);
      cuda->mask(device, there), reference->mask(truth, here);
      cuda->copy(device, found);
      EXPECT_EQ(std::memcmp(found.raw(), truth.raw(), std::size_t(truth.bytes())), 0)
          << "vocabulary " << vocab << ", " << rows << " rows";
    }
}

}  // namespace
}  // namespace foretoken::test
