// A device that records forwards does so while a run warms up. This module must not know runs or engines.
#pragma once
#include "kernels/backend.h"

namespace foretoken {

// While it lives the device records no forward, of which each would take milliseconds: one that the warm-up has not met
// runs as it is.
class NothingRecorded {
 public:
  // `asked`: otherwise it does nothing.
  NothingRecorded(Backend& backend, bool asked) : backend_(backend) { backend_.record_new(!asked); }
  ~NothingRecorded() { backend_.record_new(true); }
  NothingRecorded(const NothingRecorded&) = delete;

 private:
  Backend& backend_;
};

}  // namespace foretoken
