// Reference backends on which the lanes of a batch run in another order than one after another: what a rule keeps
// outside its arguments, in static or member variables, then changes verdicts, as it does on a machine with threads,
// but always and everywhere alike.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "kernels/reference/reference_backend.h"

namespace foretoken::conformance {

// The last lane first.
class Backwards : public ReferenceBackend {
 public:
  std::string description() const override { return "the last tree judged first"; }
  void for_each(int n, const std::function<void(int)>& f) override {
    for (int i = n; i-- > 0;) f(i);
  }
};

// A thread for each lane. They take turns: one goes on at every draw of another, and wherever another reads
// probabilities. A lane that waits for one whose turn it is not, as a lock makes it, gets it after a second.
class Turns : public ReferenceBackend {
 public:
  Turns();
  ~Turns() override;
  std::string description() const override { return "trees judged at once, by threads that take turns"; }
  void for_each(int n, const std::function<void(int)>& f) override;
  Chance* chance() override;
  double distribution_tile(const Distribution& distribution, Token begin, int n, double* p) const override;

 private:
  struct Ring;
  std::unique_ptr<Ring> ring_;  // of the for_each that runs
};

}  // namespace foretoken::conformance
