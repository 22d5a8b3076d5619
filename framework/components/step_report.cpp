#include "framework/components/step_report.h"

#include <iterator>

#include "kernels/error.h"

namespace foretoken {

Phases& Phases::operator+=(const Phases& o) {
  schedule += o.schedule, draft_forward += o.draft_forward, draft_other += o.draft_other;
  target_forward += o.target_forward, verify += o.verify, deliver += o.deliver, total += o.total;
  return *this;
}

const char* name_of(NoDraft why) {
  static constexpr const char* kNames[] = {"drafted", "policy", "end", "rows", "pages", "context", "states", "nothing"};
  static_assert(std::size(kNames) == std::size_t(NoDraft::count));
  return kNames[std::size_t(why)];
}

StepReport without_failures(StepReport report) {
  for (const Sequence& q : report.finished)
    if (q.finish == Finish::failed) throw Error("request " + std::to_string(q.id) + " failed: " + q.failure);
  return report;
}

}  // namespace foretoken
