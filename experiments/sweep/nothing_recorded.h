// A device that records forwards does so before anything counts. This module must not know runs or engines.
#pragma once
#include "kernels/backend.h"

namespace foretoken {

// While it lives, and where the run was `warmed_up`, the device records no new forward, which would take milliseconds:
// it runs as it is. Two of one device must not live at once.
class NothingRecorded {
 public:
  NothingRecorded(Backend& backend, bool warmed_up) : backend_(backend) { backend_.record_new(!warmed_up); }
  ~NothingRecorded() { backend_.record_new(true); }
  NothingRecorded(const NothingRecorded&) = delete;

 private:
  Backend& backend_;
};

}  // namespace foretoken
