// A plugin with the fault that the variable FAULT names: "throws in draft", "exits in Entry::make". Built by
// plugins_test.py as a user would build it.
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <foretoken/plugin.h>
#include <unistd.h>

namespace {

struct Mine : std::exception {
  const char* what() const noexcept override { return "no table was found"; }
};

// An Error class of the plugin's own, whose virtual functions are in the plugin.
struct MyError : foretoken::Error {
  using Error::Error;
  const char* what() const noexcept override { return "this is my own sentence"; }
};

bool fault_is(const std::string& fault) {
  const char* const variable = std::getenv("FAULT");
  return variable && fault == variable;
}

// All threads call exit at once: they wait for each other without sleeping.
void exit_in_several_threads() {
  constexpr int kThreads = 4;
  std::atomic<int> ready = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      for (++ready; ready < kThreads;) {
      }
      std::exit(0);
    });
}

void go_wrong_in(const std::string& where) {
  if (fault_is("throws in " + where)) throw Mine();
  if (fault_is("throws an integer in " + where)) throw 3;
  if (fault_is("throws an Error in " + where)) throw MyError("");
  if (fault_is("exits in " + where)) std::exit(0);
  if (fault_is("exits quickly in " + where)) std::quick_exit(0);
  if (fault_is("_exits in " + where)) _exit(0);
  if (fault_is("_Exits in " + where)) std::_Exit(0);
  if (fault_is("exits in several threads in " + where)) exit_in_several_threads();
}

const struct Global {
  Global() { go_wrong_in("a global object"); }
} global;

}  // namespace

namespace foretoken {

constexpr Budget kTwo{.nodes = 3, .depth = 2};

// The program has a function of this name; the plugin must call its own.
Entry<LengthPolicy> fixed() {
  class Two : public LengthPolicy {
    std::vector<Budget> budgets(std::span<const PastOnly> past) override {
      return std::vector<Budget>(past.size(), kTwo);
    }
  };
  return {"always two",
          "",
          {},
          [](const nlohmann::json&, Host&) { return std::make_unique<Two>(); },
          [](const nlohmann::json&, const ModelInfo&) { return kTwo; }};
}

// Accepts every draft.
struct Credulous {
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    int node = 0;
    for (int child = t.child(0, 0); child >= 0; child = t.child(node, node)) v.follow(node = child, t.tokens[child]);
    v.finish(lane.draw(t.p(node), {Role::bonus, std::uint32_t(node), 0}));
    return v;
  }
};

Entry<Verifier> credulous(const std::string& promise) {
  return {"takes all",
          "",
          {},
          [](const nlohmann::json&, Host&) { return std::make_unique<RuleVerifier<Credulous>>(); },
          [promise](const nlohmann::json&, const ModelInfo&) {
            return Soundness{.takes = {Drawn::certain}, .promise = promise, .acceptance = Acceptance::product};
          }};
}

// Drafts the last token again.
class Parrot : public Drafter {
 public:
  explicit Parrot(Host& host) : backend_(host.backend()) { go_wrong_in("Entry::make"); }
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    go_wrong_in("Drafter::draft");
    for (const DraftRequest& r : requests)
      if (r.sequence->prompt_length > 40) go_wrong_in("Drafter::draft of a long prompt");
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < requests.size(); ++i)
      if (requests[i].budget.drafts()) trees[i].guess(0, requests[i].sequence->last());
    return trees;
  }
  void observe(std::span<const Outcome>) override { go_wrong_in("Drafter::observe"); }
  void forget(const Sequence&) override { go_wrong_in("Drafter::forget"); }

 private:
  Backend& backend_;
};

class Cautious : public LengthPolicy {
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    go_wrong_in("LengthPolicy::budgets");
    return std::vector<Budget>(past.size(), {.nodes = 2, .depth = 1});
  }
  void observe(const StepReport&) override { go_wrong_in("LengthPolicy::observe"); }
  void forget(const Sequence&) override { go_wrong_in("LengthPolicy::forget"); }
};

// Writes no verdict.
class Lame : public Verifier {
  void verify(Backend&, const Trials&, Tensor) override { go_wrong_in("Verifier::verify"); }
};

template <class T> void add_faulty(Registry<T>& registry, const char* name, const typename T::Traits& stated,
                                   const std::function<std::unique_ptr<T>(Host&)>& make) {
  registry.add(name, {"",
                      "",
                      {},
                      [make](const nlohmann::json&, Host& h) { return fault_is("makes nothing") ? nullptr : make(h); },
                      [stated](const nlohmann::json&, const ModelInfo&) {
                        go_wrong_in("Entry::traits");
                        return stated;
                      }});
}

void register_faults(Registries& r) {
  add_faulty<Drafter>(r.drafters, "parrot", {.proposes = {Drawn::certain}},
                      [](Host& host) { return std::make_unique<Parrot>(host); });
  add_faulty<LengthPolicy>(r.policies, "cautious", Budget{2, 1}, [](Host&) { return std::make_unique<Cautious>(); });
  add_faulty<Verifier>(r.verifiers, "lame", {.takes = {Drawn::certain}},
                       [](Host&) { return std::make_unique<Lame>(); });
}

}  // namespace foretoken

extern "C" const char* foretoken_abi() {
  go_wrong_in("foretoken_abi()");
  return foretoken::kAbi;
}
extern "C" void foretoken_plugin(foretoken::Registries& registries) {
  const char* const variable = std::getenv("FAULT");
  const std::string fault = variable ? variable : "";
  if (fault == "nothing") return;
  registries.policies.add("two", foretoken::fixed());
  go_wrong_in("foretoken_plugin()");
  if (fault.find("::") != std::string::npos || fault == "makes nothing") foretoken::register_faults(registries);
  if (fault == "credulous") {
    registries.verifiers.add("liar", foretoken::credulous("exact"));
    registries.verifiers.add("frank", foretoken::credulous("lossy: the drafter's distribution"));
  }
  if (fault == "taken") registries.drafters.add("ngram", {});
  if (fault == "no traits") registries.verifiers.add("hollow", {});
  if (fault == "no maker") {
    foretoken::Entry<foretoken::Verifier> entry = foretoken::credulous("exact");
    entry.make = {};
    registries.verifiers.add("hollow", entry);
  }
}
