#include "framework/components/named_faults.h"

#include <new>

#include "framework/components/thrown.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

class NamedDrafter : public Drafter {
 public:
  NamedDrafter(std::unique_ptr<Drafter> inner, const Blamed& who) : inner_(std::move(inner)), who_(who) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    return naming_faults(who_, "Drafter::draft", [&] { return inner_->draft(requests); });
  }
  void observe(std::span<const Outcome> outcomes) override {
    naming_faults(who_, "Drafter::observe", [&] { inner_->observe(outcomes); });
  }
  void observe_step(const StepReport& report) override {
    naming_faults(who_, "Drafter::observe_step", [&] { inner_->observe_step(report); });
  }
  void forget(const Sequence& sequence) override {
    naming_faults(who_, "Drafter::forget", [&] { inner_->forget(sequence); });
  }
  std::string notice() const override {
    return naming_faults(who_, "Drafter::notice", [&] { return inner_->notice(); });
  }

 private:
  std::unique_ptr<Drafter> inner_;
  Blamed who_;
};

class NamedPolicy : public LengthPolicy {
 public:
  NamedPolicy(std::unique_ptr<LengthPolicy> inner, const Blamed& who) : inner_(std::move(inner)), who_(who) {}
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    return naming_faults(who_, "LengthPolicy::budgets", [&] { return inner_->budgets(past); });
  }
  void observe(const StepReport& report) override {
    naming_faults(who_, "LengthPolicy::observe", [&] { inner_->observe(report); });
  }
  void forget(const Sequence& sequence) override {
    naming_faults(who_, "LengthPolicy::forget", [&] { inner_->forget(sequence); });
  }
  std::string notice() const override {
    return naming_faults(who_, "LengthPolicy::notice", [&] { return inner_->notice(); });
  }

 private:
  std::unique_ptr<LengthPolicy> inner_;
  Blamed who_;
};

class NamedVerifier : public Verifier {
 public:
  NamedVerifier(std::unique_ptr<Verifier> inner, const Blamed& who) : inner_(std::move(inner)), who_(who) {}
  void verify(Backend& backend, const Trials& trials, Tensor verdicts) override {
    naming_faults(who_, "Verifier::verify", [&] { inner_->verify(backend, trials, verdicts); });
  }

 private:
  std::unique_ptr<Verifier> inner_;
  Blamed who_;
};

}  // namespace

std::unique_ptr<Drafter> naming_faults(std::unique_ptr<Drafter> drafter, const Blamed& who) {
  return std::make_unique<NamedDrafter>(std::move(drafter), who);
}
std::unique_ptr<LengthPolicy> naming_faults(std::unique_ptr<LengthPolicy> policy, const Blamed& who) {
  return std::make_unique<NamedPolicy>(std::move(policy), who);
}
std::unique_ptr<Verifier> naming_faults(std::unique_ptr<Verifier> verifier, const Blamed& who) {
  return std::make_unique<NamedVerifier>(std::move(verifier), who);
}

void name_fault(const Blamed& blamed, const char* where) {
  const std::string& who = blamed.who;
  try {
    throw;
  } catch (const Error& e) {
    if (!blamed.errors || std::string(e.what()).find(who) != std::string::npos) throw;
    throw Error(who + " failed in " + where + ": " + e.what());
  } catch (const std::bad_alloc&) {
    throw;
  } catch (...) {
    throw Error(who + " failed in " + where + ", which threw: " + thrown() +
                "; correct it there, or throw foretoken::Error for what its user can mend");
  }
}

}  // namespace foretoken
