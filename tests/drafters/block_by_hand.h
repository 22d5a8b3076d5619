// A head that drafts blocks, of tests/data/heads, beside the tiny target llama2, fed by hand.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "drafters/heads/block_head.h"
#include "framework/components/block_model.h"
#include "tests/drafters/head_by_hand.h"

namespace foretoken::test {

inline bool corrects(const std::string& name) { return name.starts_with("dspark"); }

// A head beside the tiny target llama2, in rounds of one sequence.
struct BlockByHand {
  explicit BlockByHand(std::unique_ptr<Backend> made, const MakeTarget& target = tiny_target)
      : backend(std::move(made)), models{target(*backend), {}} {}

  BlockFiles files(const std::string& name) const {
    return open_block(as_named(name), corrects(name), models.target->info(), true);
  }
  void open(const std::string& name, int rows = 0) {
    head = std::make_shared<BlockHead>(*backend, files(name), host.ends(), models.target->info(), "f32");
    const BlockForm& form = head->form();
    model.emplace(host, head, form.taps, Block{rows ? rows : form.rows, form.mask, form.mutual(), form.first});
    states.emplace(*backend, models, Needs{.hidden = form.taps});
  }
  DraftRequest request(const Tokens& tokens, int rows = 1 << 20) {
    sequence.id = 1, sequence.tokens = tokens, sequence.prompt_length = 1;
    return {&sequence, {kMaxNodes, kMaxPath}, rows, {}, false, states->of(sequence)};
  }
  // The logits of every draft; where the head corrects them, by the sequence's last token and then by `drafts`.
  std::vector<std::vector<float>> round(const Tokens& tokens, const Tokens& drafts) {
    const DraftRequest r = request(tokens);
    const BlockModel::Round round = model->run({&r, 1});
    std::vector<std::vector<float>> found;
    for (int k = 1; k <= model->drafts(r) && !round.active.empty(); ++k) {
      const Tensor logits = model->logits(round, k), before = Tensor::host({1}, DType::i32);
      *before.row<Token>(0) = k == 1 ? tokens.back() : drafts.at(std::size_t(k - 2));
      if (head->form().markov_rank > 0) head->correct(*backend, logits, before);
      found.emplace_back(logits.row<float>(0), logits.row<float>(0) + logits.dim(1));
    }
    return found;
  }

  std::unique_ptr<Backend> backend;
  std::function<nlohmann::json(const std::string& name)> as_named = directory_of_golden;  // the option of a head
  Models models;
  Registries registries = all_registries();
  PagePool pool{*backend, 1 << 16, 64};
  Host host{*backend, pool, models.target->info(), {}, false, {models.target, nullptr, &registries}};
  std::shared_ptr<BlockHead> head;
  std::optional<BlockModel> model;
  std::optional<TargetStates> states;
  Sequence sequence;
};

}  // namespace foretoken::test
