#include "framework/components/step_report.h"

namespace foretoken {

Phases& Phases::operator+=(const Phases& o) {
  schedule += o.schedule, draft_forward += o.draft_forward, draft_other += o.draft_other;
  target_forward += o.target_forward, verify += o.verify, deliver += o.deliver, total += o.total;
  return *this;
}

}  // namespace foretoken
