// Wrapped components: every call reaches the component, and whatever it throws names it and its function.
#include "framework/components/named_faults.h"

#include <new>
#include <stdexcept>

#include <gtest/gtest.h>

#include "framework/components/host.h"
#include "framework/components/pairing.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

using test::sentence_of;
// Called by every function of the components below, with its name.
using Call = std::function<void(const std::string&)>;

struct Mine : Drafter {
  explicit Mine(Call call) : call(std::move(call)) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    return call("Drafter::draft"), std::vector<DraftTree>(requests.size());
  }
  void observe(std::span<const Outcome> outcomes) override {
    call("Drafter::observe");
    EXPECT_EQ(outcomes.size(), 2u);
  }
  void forget(const Sequence& s) override {
    call("Drafter::forget");
    EXPECT_EQ(s.id, 5u);
  }
  std::string notice() const override { return call("Drafter::notice"), "it forgot"; }
  Call call;
};

struct MyPolicy : LengthPolicy {
  explicit MyPolicy(Call call) : call(std::move(call)) {}
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    return call("LengthPolicy::budgets"), std::vector<Budget>(past.size(), Budget{4, 2});
  }
  void observe(const StepReport& report) override {
    call("LengthPolicy::observe");
    EXPECT_EQ(report.rows, 11);
  }
  void forget(const Sequence& s) override {
    call("LengthPolicy::forget");
    EXPECT_EQ(s.id, 5u);
  }
  std::string notice() const override { return call("LengthPolicy::notice"), "it measured nothing"; }
  Call call;
};

struct MyVerifier : Verifier {
  explicit MyVerifier(Call call) : call(std::move(call)) {}
  void verify(Backend&, const Trials&, Tensor verdicts) override {
    call("Verifier::verify");
    EXPECT_EQ(verdicts.dim(0), 3);
  }
  Call call;
};

// Calls every function of all three, wrapped for `who`; `each` runs one call.
void call_all(const Call& call, const Blamed& who, const std::function<void(const std::function<void()>&)>& each) {
  const auto drafter = naming_faults(std::make_unique<Mine>(call), who);
  const auto policy = naming_faults(std::make_unique<MyPolicy>(call), who);
  const auto verifier = naming_faults(std::make_unique<MyVerifier>(call), who);
  const auto backend = make_reference_backend();
  Sequence sequence;
  sequence.id = 5;
  each([&] { EXPECT_EQ(drafter->draft(std::vector<DraftRequest>(2)).size(), 2u); });
  each([&] { drafter->observe(std::vector<Outcome>(2)); });
  each([&] { drafter->forget(sequence); });
  each([&] { EXPECT_EQ(drafter->notice(), "it forgot"); });
  each([&] { EXPECT_EQ(policy->budgets(std::vector<PastOnly>(3)), std::vector<Budget>(3, Budget{4, 2})); });
  each([&] {
    StepReport report;
    report.rows = 11;
    policy->observe(report);
  });
  each([&] { policy->forget(sequence); });
  each([&] { EXPECT_EQ(policy->notice(), "it measured nothing"); });
  each([&] {
    Staging staging(*backend);
    const Tensor logits = Tensor::host({1, 2}, DType::f32);
    logits.data<float>()[0] = logits.data<float>()[1] = 0;
    const std::vector<DraftTree> trees{DraftTree::rooted(*backend, 0, 0)};
    const Draws draws;
    const std::uint32_t position = 1;
    const Trials trials(*backend, trees, backend->distributions(logits, std::vector<Warp>(1)), {&draws, 1},
                        {&position, 1}, staging);
    verifier->verify(*backend, trials, Tensor::host({3, 1}, DType::u8));
  });
}

const std::vector<std::string> kFunctions = {"Drafter::draft",       "Drafter::observe",      "Drafter::forget",
                                             "Drafter::notice",      "LengthPolicy::budgets", "LengthPolicy::observe",
                                             "LengthPolicy::forget", "LengthPolicy::notice",  "Verifier::verify"};

TEST(NamedFaults, EveryCallReachesTheComponent) {
  std::vector<std::string> called;
  call_all([&](const std::string& name) { called.push_back(name); }, Blamed("X"), [](const auto& one) { one(); });
  EXPECT_EQ(called, kFunctions);
}

// The message of each function of `who` when it throws by `call`.
std::vector<std::string> sentences(const Call& call, const Blamed& who) {
  std::vector<std::string> said;
  call_all(call, who, [&](const auto& one) { said.push_back(sentence_of(one)); });
  return said;
}

TEST(NamedFaults, AnExceptionNamesTheComponentAndTheFunction) {
  std::vector<std::string> known, unknown;
  for (const std::string& name : kFunctions) {
    const std::string head = "the thing 'x' failed in " + name + ", which threw: ";
    const std::string remedy = "; correct it there, or throw foretoken::Error for what its user can mend";
    known.push_back(head + "no table" + remedy);
    unknown.push_back(head + "something that is no std::exception" + remedy);
  }
  EXPECT_EQ(sentences([](const std::string&) { throw std::runtime_error("no table"); }, Blamed("the thing 'x'")),
            known);
  EXPECT_EQ(sentences([](const std::string&) { throw 3; }, Blamed("the thing 'x'")), unknown);
}

TEST(NamedFaults, AnErrorIsForUsersAndPassesUnlessItIsToBeNamed) {
  const Call tells = [](const std::string&) { throw Error("give it a table"); };
  const Call tells_who = [](const std::string&) { throw Error("the thing 'x' needs a table"); };
  std::vector<std::string> named;
  for (const std::string& name : kFunctions) named.push_back("the thing 'x' failed in " + name + ": give it a table");
  const std::vector<std::string> plain(kFunctions.size(), "give it a table"),
      own(kFunctions.size(), "the thing 'x' needs a table");
  EXPECT_EQ(sentences(tells, Blamed("the thing 'x'")), plain);
  EXPECT_EQ(sentences(tells, Blamed("the thing 'x'", true)), named);
  EXPECT_EQ(sentences(tells_who, Blamed("the thing 'x'", true)), own) << "it is named already";
}

TEST(NamedFaults, TheEndOfMemoryPasses) {
  const Call call = [](const std::string&) { throw std::bad_alloc(); };
  call_all(call, Blamed("X", true), [](const auto& one) { EXPECT_THROW(one(), std::bad_alloc); });
}

TEST(NamedFaults, AnEntryNamesItsMakerItsTraitsAndWhatItMakes) {
  const auto backend = make_reference_backend();
  PagePool pool(*backend, 64, 4);
  const ModelInfo target;
  Host host(*backend, pool, target, {}, false);
  const Call throws = [](const std::string&) { throw 3; };
  Entry<Drafter> entry;
  entry.make = [](const nlohmann::json&, Host&) -> std::unique_ptr<Drafter> { throw 3; };
  entry.traits = [](const nlohmann::json&, const ModelInfo&) -> Needs { throw 3; };
  const Entry<Drafter> named = naming_faults(entry, Blamed("X"));
  EXPECT_TRUE(test::says(sentence_of([&] { named.make({}, host); }), "X failed in Entry::make, which threw"));
  EXPECT_TRUE(test::says(sentence_of([&] { named.traits({}, target); }), "X failed in Entry::traits, which threw"));
  entry.make = [&](const nlohmann::json&, Host&) { return std::make_unique<Mine>(throws); };
  entry.traits = [](const nlohmann::json&, const ModelInfo&) { return Needs{.proposes = {}, .ranks = 4}; };
  const Entry<Drafter> whole = naming_faults(entry, Blamed("X"));
  EXPECT_EQ(whole.traits({}, target).ranks, 4);
  const auto made = whole.make({}, host);
  EXPECT_TRUE(test::says(sentence_of([&] { made->forget({}); }), "X failed in Drafter::forget"));
  entry.make = [](const nlohmann::json&, Host&) { return nullptr; };
  EXPECT_FALSE(naming_faults(entry, Blamed("X")).make({}, host)) << "the registry says what is wrong with it";
}

}  // namespace
}  // namespace foretoken::test
