#include "framework/engine/judging.h"

#include <vector>

namespace foretoken {

Readback Judging::judge(const Plan& plan, std::span<const DraftTree> all, const Output& out, Verifier& verifier) {
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
  const Distributions raw = distributions_.raw(out.logits, rows);
  const Trials trials(backend_, trees, distributions_.of(out.logits, rows), draws, positions, trials_staging_);
  const Tensor verdicts = backend_.allocate({std::int64_t(trees.size()), std::int64_t(sizeof(Verdict))}, DType::u8);
  verifier.verify(backend_, trials, verdicts);
  if (logprobs)
    log_probabilities(backend_, trials, verdicts, backend_.upload(Tensor::host_copy<std::uint8_t>(warped, DType::u8)),
                      raw);
  readback_staging_.begin(verdicts.bytes() + trials.tokens().bytes() + 2 * Staging::kAlignment);
  const Readback read{readback_staging_.array(verdicts.shape(), DType::u8).host,
                      readback_staging_.array(trials.tokens().shape(), DType::i32).host};
  backend_.fetch(verdicts, read.verdicts);
  backend_.fetch(trials.tokens(), read.tokens);
  return read;
}

}  // namespace foretoken
