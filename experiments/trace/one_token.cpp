// Compiled by nvcc where there is a CUDA device.
#include "experiments/trace/one_token.h"

namespace foretoken {
namespace {

struct OneToken {
  bool race;
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    if (race)
      v.finish(lane.race(t.p(0), t.position));
    else  // by the same arithmetic and name as the token after a bare root
      v.finish(lane.draw(lane.open(t.p(0), t.p(0)), {Role::bonus, 0, 0}));
    return v;
  }
};

}  // namespace

std::unique_ptr<Verifier> one_token(bool race) { return std::make_unique<RuleVerifier<OneToken>>(OneToken{race}); }

}  // namespace foretoken
