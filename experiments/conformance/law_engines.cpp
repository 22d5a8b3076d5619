// memory, of a process with two engines.
#include "experiments/conformance/whole_runs.h"
#include "kernels/reference/reference_backend.h"

namespace foretoken::conformance {
namespace {

std::string text_of_tree(const DraftRequest& r, const DraftTree& tree) {
  std::string text = "sequence " + std::to_string(r.sequence->id) + " at length " +
                     std::to_string(r.sequence->length()) + " got the draft (parent>token of each node) [";
  for (int n = 1; n < tree.nodes; ++n)
    text += (n > 1 ? " " : "") + std::to_string(*tree.parents.row<std::int32_t>(n)) + ">" +
            std::to_string(*tree.tokens.row<Token>(n));
  return text + "]";
}

// Requests of the other engine, which takes a step after each step of the run.
class Other {
 public:
  Other(const Subject& subject, const Scenario& scenario, const Models& models, std::span<const TestRequest> requests)
      : engine_(backend_, models.target, subject.registries, subject.configs, scenario.engine, models.load) {
    for (const TestRequest& r : requests) {
      Limits limits;
      limits.max_new_tokens = r.max_new_tokens;
      engine_.submit({r.prompt, limits, scenario.sampling, r.stream, {}});
    }
  }
  void step() {
    if (!engine_.idle()) (void)without_failures(engine_.step());
  }

 private:
  ReferenceBackend backend_;
  Engine engine_;
};

}  // namespace

Finding beside_another_engine(const Subject& subject, const Scenario& scenario, HostBackend& backend,
                              const Models& models, std::span<const TestRequest> requests,
                              std::span<const TestRequest> others) {
  Finding f{.what = subject.text()};
  const auto trees = [&](Other* other) {
    std::vector<std::string> all;
    const Subject seen =
        watched(subject, [&](Host&, std::span<const DraftRequest> asked, std::span<const DraftTree> given) {
          for (std::size_t i = 0; i < given.size(); ++i) all.push_back(text_of_tree(asked[i], given[i]));
        });
    const RunOutcome outcome = run_scenario(seen, scenario, backend, models, requests,
                                            [&](Engine&, const StepReport&, std::span<const Sequence* const>) {
                                              if (other) other->step();
                                            });
    f.accepted = outcome.accepted, f.rejected = outcome.rejections, f.cases += long(all.size());
    return all;
  };
  const bool learns = needs_of(subject.registries, subject.configs.drafter).learns ||
                      policy_of(subject.registries, subject.configs.policy).learns;
  const std::vector<std::string> alone = trees(nullptr);
  if (learns && trees(nullptr) != alone) return f;  // it measures times
  Other other(subject, scenario, models, others);
  const std::vector<std::string> beside = trees(&other);
  for (std::size_t i = 0; i < std::max(alone.size(), beside.size()) && f.holds; ++i) {
    const std::string a = i < alone.size() ? alone[i] : "there was no such draft",
                      b = i < beside.size() ? beside[i] : "there was no such draft";
    if (a != b)
      f.fail("beside another engine of the process " + b + "; alone: " + a +
             "; keep what a component knows in its object, not in static variables");
  }
  return f;
}

}  // namespace foretoken::conformance
