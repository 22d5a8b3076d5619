// mutations: planted bugs in the names of draws, each detected by the law that the test names; and bugs that an
// enumerator without memory of names misses.
#include "tests/laws/mutant_scenario.h"

namespace foretoken::test {
namespace {

// Names of draws. The enumerator without memory shows which bugs a proof misses that forks at every draw.
void killed_by_names(const RenamingBackend::Rename& rename, ExactCase c, const json& verifier = kSampling) {
  const Subject s = subject(all_registries(), kDraftModel, verifier);
  EXPECT_TRUE(exact(s, c).holds);
  c.backend = RenamingBackend::make(rename);
  EXPECT_TRUE(refuted(exact(s, c)));
  c.remembers = false;
  EXPECT_TRUE(exact(s, c).holds) << "an enumerator without memory cannot see this";
}

TEST(Mutants, DrawsSharedBetweenRolesAreKilledByExact) {
  killed_by_names([](Draws&, DrawName& n) { n.role = Role::draft; }, three_tokens());
}

TEST(Mutants, DrawsSharedBetweenRolesAreKilledBySampled) {
  RenamingBackend shared([](Draws&, DrawName& n) { n.role = Role::draft; }), right([](Draws&, DrawName&) {});
  const SampledCase c{.target = {.vocab = 3, .order = 2, .seed = 81}, .found = 0.02};
  EXPECT_FALSE(sampled(subject(all_registries(), kDraftModel, kSampling), c, shared).holds);
  EXPECT_TRUE(sampled(subject(all_registries(), kDraftModel, kSampling), c, right).holds);
}

TEST(Mutants, NamesWithoutTheRootAreKilledByExact) {
  killed_by_names([](Draws& d, DrawName&) { d.root = 0; }, three_tokens());
}

TEST(Mutants, NamesWithoutTheNodeAreKilledByExact) {
  killed_by_names([](Draws&, DrawName& n) { n.node = 0; }, three_tokens());
}

TEST(Mutants, NamesWithoutTheStreamAreKilledByExactOfTwoSequences) {
  ExactCase c = two_tokens();
  c.prompts = {{0, 1}, {0, 1}};
  c.tokens = 2;
  killed_by_names([](Draws& d, DrawName&) { d.stream = 0; }, c);
}

TEST(Mutants, NoiseWithoutThePositionIsKilledByExact) {
  killed_by_names([](Draws& d, DrawName&) { d.root = 0; }, two_tokens(), {{"name", "coupled"}});
}

// A policy may read discarded drafts, since no later round reuses their draws; with names by position alone a later
// round does.
TEST(Mutants, APolicyThatReadsDiscardedDraftsUnderNamesByPositionIsKilledByExact) {
  ExactCase c{.target = {.vocab = 3, .order = 2, .seed = 81, .strict = false},
              .prompts = {{0, 1}},
              .tokens = 3,
              .max_new_tokens = 5};
  const Subject fixed = subject(all_registries(), kDraftModel, kSampling, 3);
  Subject discard_reader = subject(with_discard_reader(all_registries()), kDraftModel, kSampling);
  discard_reader.configs.policy = {{"name", "discard_reader"}};
  EXPECT_TRUE(exact(fixed, c).holds);
  EXPECT_TRUE(exact(discard_reader, c).holds);
  c.backend = RenamingBackend::make(name_by_position);
  const Finding unread = exact(fixed, c);
  EXPECT_TRUE(unread.holds) << unread.what;
  EXPECT_TRUE(refuted(exact(discard_reader, c)));
}

// The assumption of the whole proof: equal names are the same draw. Here the acceptance of a draft reuses the draw that
// made it.
TEST(Enumerator, ThatForgetsNamesMissesAReusedDrawAndTheShippedOneFindsIt) {
  const Subject s = subject(all_registries(), kDraftModel, kSampling);
  ExactCase c = three_tokens();
  c.backend = RenamingBackend::make([](Draws&, DrawName& n) {
    if (n.role == Role::accept) n.role = Role::draft;
  });
  EXPECT_TRUE(refuted(exact(s, c)));
  c.remembers = false;
  const Finding forgetful = exact(s, c);
  EXPECT_TRUE(forgetful.holds) << forgetful.what;
  EXPECT_GT(forgetful.accepted, 0);
  EXPECT_GT(forgetful.rejected, 0);
}

}  // namespace
}  // namespace foretoken::test
