// What the drafters of a block have in common: the options of their head, and the head with its form. They differ in
// how tokens are chosen from what the head gives.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "drafters/heads/block_head.h"
#include "framework/components/block_model.h"
#include "framework/components/registry.h"

namespace foretoken {

struct BlockDrafting {
  std::shared_ptr<BlockHead> head;
  BlockModel model;
  std::optional<float> temperature;  // of the draft's distributions; absent: the sequence's own
};

struct BlockKind {
  std::string name;  // of the drafter
  std::string summary, source;
  bool corrects = false;  // open_block
  Drawn draws = Drawn::marginals;
  std::function<std::unique_ptr<Drafter>(Host& host, BlockDrafting drafting)> make;
};

Entry<Drafter> block_entry(BlockKind kind);

}  // namespace foretoken
