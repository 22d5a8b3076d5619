#include "framework/engine/judging.h"

#include <vector>

namespace foretoken {

Readback Judging::judge(const Plan& plan, std::span<const DraftTree> all, const Output& out, Verifier& verifier,
                        const Wanted& wanted) {
  if (!out.logits) return {};
  std::vector<DraftTree> trees;
  std::vector<DistributionAfter> rows;
  std::vector<Draws> draws;
  std::vector<std::uint32_t> positions;
  std::vector<std::uint8_t> warped;
  bool logprobs = false;
  for (std::size_t i = 0; i < plan.scheduled.size(); ++i) {
    if (!plan.scheduled[i].root) continue;
    const Sequence& q = plan.scheduled[i].active->sequence;
    for (int n = 0; n < all[i].nodes; ++n) rows.push_back({&q, &all[i], n, q.sampling.warp()});
    draws.push_back({q.sampling.seed, q.stream, std::uint32_t(q.length()), 0});
    positions.push_back(std::uint32_t(q.length()));
    warped.push_back(q.sampling.warped_logprobs);
    logprobs |= q.sampling.logprobs;
    trees.push_back(all[i]);
  }
  const Distributions own = distributions_.raw(out.logits, rows), p = distributions_.of(out.logits, rows);
  const Distributions raw = wanted.raw || wanted.ranks > 0
                                ? backend_.distributions(p.logits, std::vector<Warp>(rows.size(), Warp{1}))
                                : Distributions();
  const Trials trials(backend_, trees, p, draws, positions, trials_staging_, raw);
  const Tensor verdicts = backend_.allocate({std::int64_t(trees.size()), std::int64_t(sizeof(Verdict))}, DType::u8);
  verifier.verify(backend_, trials, verdicts);
  if (logprobs)
    log_probabilities(backend_, trials, verdicts, backend_.upload(Tensor::host_copy<std::uint8_t>(warped, DType::u8)),
                      own);
  return read_back(verdicts, trials.tokens(), raw, wanted.ranks);
}

Readback Judging::read_back(const Tensor& verdicts, const Tensor& tokens, const Distributions& raw, int ranks) {
  const Shape ranked{tokens.dim(0), ranks};
  readback_staging_.begin(verdicts.bytes() + tokens.bytes() + ranked.elements() * 4 + 3 * Staging::kAlignment);
  Readback read{readback_staging_.array(verdicts.shape(), DType::u8).host,
                readback_staging_.array(tokens.shape(), DType::i32).host,
                {}};
  backend_.fetch(verdicts, read.verdicts);
  backend_.fetch(tokens, read.tokens);
  if (ranks == 0) return read;
  const Tensor best = backend_.allocate(ranked, DType::i32);
  backend_.rank(raw, ranks, best, backend_.allocate(ranked, DType::f32));
  read.ranks = readback_staging_.array(ranked, DType::i32).host;
  backend_.fetch(best, read.ranks);
  return read;
}

}  // namespace foretoken
