// A head that drafts a block in one forward (DFlash, arXiv 2602.06036). Its cache has context rows alone: for each
// position of the sequence keys and values that its layers make of the target's states there. Rows with states
// (Rows::inputs) are such; rows without are those of a block, which run through the layers and attend to the context
// and to one another. With a low-rank correction of their logits by the token before it is DSpark's (2607.05147). This
// module must not know trees or caches.
#pragma once
#include <memory>
#include <vector>

#include "drafters/heads/block_files.h"
#include "drafters/heads/state_head.h"
#include "framework/model/decoder_layer.h"

namespace foretoken {

class BlockHead : public StateHead {
 public:
  // As EagleHead.
  BlockHead(Backend& backend, const BlockFiles& files, const Ends& ends, const ModelInfo& target,
            const std::string& dtype);
  bool features() const override { return false; }
  bool reads_states() const override { return true; }
  std::int64_t read_bytes(bool inputs) const override;
  const BlockForm& form() const { return form_; }
  // logits f32 [rows, vocab] += the correction by the tokens before theirs, i32 [rows] (-1: absent, none). Of a head
  // that has one.
  void correct(Backend& backend, const Tensor& logits, const Tensor& before) const;

 private:
  Tensor stream(Backend& backend, const Rows& rows, std::span<const KvLayer> kv) const override;

  BlockForm form_;
  Weight fc_;           // [width, taps target_width]
  Tensor hidden_norm_;  // f32 [width]
  std::vector<DecoderLayer> layers_;
  Weight of_before_, to_logits_;  // [vocab, rank], [draft vocabulary, rank]
};

}  // namespace foretoken
