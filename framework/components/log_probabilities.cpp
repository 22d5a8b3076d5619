// Log-probabilities of emitted tokens, computed on the lanes of the verifier. Compiled by nvcc where there is a CUDA
// device.
#include "framework/components/verifier.h"

namespace foretoken {
namespace {

struct LogProbabilities {
  const Trial* trials;
  Verdict* verdicts;
  const std::uint8_t* warped;
  const float* adjusted;  // row 0 of the trials' logits
  const float* raw;       // the same rows before adjustment, `stride` apart; null: the trials' logits
  std::int64_t stride;
  const DistributionRow* raw_rows;
  template <class Lane> FORETOKEN_HD void operator()(Lane& lane, int i) const {
    Verdict& v = verdicts[i];
    if (v.next < 0 || v.length < 0 || v.length > kMaxPath) return;
    lane.each(v.length + 1, [&](int k) {
      const int node = k > 0 ? v.path[k - 1] : 0;
      if (node < 0 || node >= trials[i].nodes || v.tokens[k] < 0 || v.tokens[k] >= trials[i].vocab)
        return;  // expect_verdict, which looks at it later, refuses it
      const Distribution p = trials[i].p(node);
      v.logprobs[k] =
          float(warped[i] ? log_exactly(p(v.tokens[k])) : own(p, trials[i].p_stride).raw_log_probability(v.tokens[k]));
    });
  }
  FORETOKEN_HD Distribution own(const Distribution& p, std::int64_t p_stride) const {
    if (!raw) return p;
    const std::int64_t row = (p.logits - adjusted) / p_stride;
    return {raw + row * stride, raw_rows[row], p.vocab};
  }
};

}  // namespace

void log_probabilities(Backend& backend, const Trials& trials, Tensor verdicts, const Tensor& warped,
                       const Distributions& raw) {
  const LogProbabilities task{trials.trials(),
                              verdicts.data<Verdict>(),
                              warped.data<std::uint8_t>(),
                              trials.p().logits.row<float>(0),
                              raw ? raw.logits.row<float>(0) : nullptr,
                              raw ? raw.logits.row_stride() : 0,
                              raw ? reinterpret_cast<const DistributionRow*>(raw.rows.row<std::uint8_t>(0)) : nullptr};
  launch(backend, trials.count(), trials.draws(), trials.vocab(), task);
}

}  // namespace foretoken
