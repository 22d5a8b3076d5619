// Draws from distributions with all mass on one token: it is drawn first, and what follows without repeats is absent.
#include <gtest/gtest.h>

#include "kernels/backend.h"

namespace foretoken::test {
namespace {

TEST(OneHotDraws, LaterSiblingsAreAbsent) {
  const Tensor logits = Tensor::host({2, 4}, DType::f32);
  std::copy_n(std::vector<float>{0, 3, 1, 2, 5, 0, 5, 0}.begin(), 8, logits.data<float>());
  const std::vector<Warp> greedy(2, Warp{0});
  for (const auto& backend : {make_reference_backend(), make_cpu_backend(1)})
    for (const bool race : {false, true})
      for (const int siblings : {1, 2, 3, 4}) {
        std::vector<Token> drawn(8, -9), want(8, -9);
        const auto draw = [&](int row) {
          return TokenDraw{.name = {Role::draft, 1, 0},
                           .race = race,
                           .siblings = std::uint8_t(siblings),
                           .row = row,
                           .to = drawn.data() + 4 * row};
        };
        for (const auto& [row, best] : {std::pair(0, 1), std::pair(1, 0)}) {
          std::fill_n(want.begin() + 4 * row, siblings, -1);
          want[std::size_t(4 * row)] = best;
        }
        backend->draw(backend->distributions(logits, greedy), std::vector{draw(0), draw(1)}, {});
        EXPECT_EQ(drawn, want) << siblings << " siblings" << (race ? " of a race" : "");
      }
}

}  // namespace
}  // namespace foretoken::test
