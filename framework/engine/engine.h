// The engine: continuous batching over one target, one drafter, one length policy and one verifier, which it never asks
// who they are. One step, room by room: who runs, how much to draft, drafts, one forward of the target, verdicts,
// tokens. No speculation is the drafter that proposes a bare root; there is no second path.
#pragma once
#include <memory>
#include <vector>

#include "framework/components/host.h"
#include "framework/components/pairing.h"
#include "framework/components/registry.h"
#include "framework/components/step_report.h"
#include "framework/engine/draft_readback.h"
#include "framework/engine/judging.h"
#include "framework/engine/scheduler.h"

namespace foretoken {

struct EngineOptions {
  int batch = 4;                  // the most sequences running at once
  int step_rows = 0;              // the most rows of one target forward, at least `batch`; 0: 512, or `batch` times the
                                  // most nodes of the policy where that is more
  int page_rows = 16;             // positions of the target in one page
  std::int64_t memory_mib = 256;  // of all caches together
  std::int64_t logits_mib = 0;  // of a step's logits, the draft's distributions and raw copies: bounds the nodes of its
                                // trees; 0: no bound
  int pages = 0;                // of the pool; 0: as many as fit into memory_mib
  bool reuse_prefixes = true;
  bool check = false;  // KvCache::check() of every cache after every step
};

struct Request {
  std::vector<Token> prompt;
  Limits limits;
  Sampling sampling;
  std::uint64_t stream = 0;  // names the draws: equal requests with equal streams give equal results
  // Tokens as they come. What it throws fails the request, as what its stop rule throws does.
  std::function<void(const Sequence&, std::span<const Token>)> on_tokens;
  // A request that was submitted before, with the same prompt: this one is another sample of it. It begins when that
  // prompt has been read, and shares its full pages. 0: none.
  SequenceId like = 0;
};

class Engine : private Scheduler::Memory {
 public:
  using ComponentConfigs = ComponentConfigs;

  // An unknown name or option, or a verifier that is not sound for what the drafter proposes, is an Error. `kept`:
  // what components keep beyond this engine; absent: nothing outlives it. `registries` must outlive it.
  Engine(Backend& backend, std::shared_ptr<Model> target, const Registries& registries, const ComponentConfigs& configs,
         const EngineOptions& options, Host::Load load = {}, std::shared_ptr<Kept> kept = {});
  ~Engine() override;

  // Queues a request. An empty prompt, one longer than the model's context, a token outside the vocabulary, a sampling
  // option out of range or a sequence that can never fit into the pool is an Error. `max_new_tokens` is cut to the
  // context.
  SequenceId submit(Request request);
  void cancel(SequenceId id);
  bool idle() const { return queues_.waiting.empty() && queues_.running.empty() && finished_.empty(); }
  // A sequence that cannot go on ends alone, with Finish::failed and the reason: one whose distribution is not finite,
  // one for which a drafter, a policy or a verifier throws when asked about it alone, one whose outcome the drafter
  // throws for (Drafter::observe), one that the drafter or the policy throws for when they are to forget it, and one
  // with a tree or a verdict that no component may return. What concerns the whole step is an Error: a forward that
  // failed, what a component throws for a batch and for no request of it alone, another number of trees or budgets than
  // of requests, what LengthPolicy::observe throws. After an Error step() may be called again: what had finished comes
  // with the next report.
  StepReport step();

  const Soundness& soundness() const { return soundness_; }
  const PagePool& pool() const { return pool_; }
  CachedModel& target() { return target_; }
  const Host& host() const { return host_; }

 private:
  int unseen(const Sequence& sequence) override;
  bool reserve(const Sequence& sequence, int rows, bool insist) override;
  void release(Sequence& sequence) override;
  void forget_draft(Sequence& sequence);

  std::vector<DraftTree> draft(Plan& plan, StepReport& report);
  void choose_budgets(Plan& plan, StepReport& report);
  std::vector<DraftRequest> requests(const Plan& plan);
  int draft_lacks(const Sequence& sequence);
  template <class Questions, class Ask>
  auto ask(Plan& plan, const std::string& who, StepReport& report, const Questions& questions, const Ask& ask);
  Output forward(const Plan& plan, std::span<const DraftTree> trees, StepReport& report);
  void drop_failed(Plan& plan, StepReport& report);
  void tell_drafter(std::span<const Outcome> outcomes);
  void retire(StepReport& report);
  void hand_out(StepReport& report);
  double draft_seconds();
  void check() const;

  Backend& backend_;
  ComponentConfigs configs_;
  EngineOptions options_;
  PagePool pool_;
  CachedModel target_;
  Host host_;
  DraftReadback draft_readback_;
  Judging judging_;
  std::unique_ptr<Drafter> drafter_;
  std::unique_ptr<LengthPolicy> policy_;
  std::unique_ptr<Verifier> verifier_;
  Needs needs_;
  Budget most_;  // of the policy's budgets
  Soundness soundness_;
  Judging::Wanted wanted_;
  std::string drafter_name_, policy_name_, verifier_name_;  // for messages
  Scheduler scheduler_{1, 1};                               // replaced when the policy is known
  Queues queues_;
  std::vector<Sequence> finished_;  // whole, that no report has handed out
  SequenceId next_id_ = 1;
};

}  // namespace foretoken
