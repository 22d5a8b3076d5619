// The engine: continuous batching (Yu et al. 2022, Orca) with speculative decoding (Leviathan et al. 2023, arXiv
// 2211.17192) over one target, one drafter, one length policy and one verifier. A step schedules sequences, gets
// budgets and trees, runs one forward of the target, verifies, and delivers tokens. Plain decoding is the drafter that
// proposes a bare root; it has no code of its own. This module must not know components by name.
#pragma once
#include <memory>
#include <vector>

#include "framework/cache/draft_readback.h"
#include "framework/components/host.h"
#include "framework/components/pairing.h"
#include "framework/components/registry.h"
#include "framework/components/step_report.h"
#include "framework/engine/first_drafts.h"
#include "framework/engine/judging.h"
#include "framework/engine/other_ranks.h"
#include "framework/engine/scheduler.h"

namespace foretoken {

struct EngineOptions {
  int batch = 4;       // the most sequences running at once
  int step_rows = 0;   // the most rows of one target forward, at least `batch`; 0: `batch` times the most nodes
                       // of the policy (fewer where logits_mib says so), and for prompts 32 times `batch`, but
                       // 512 to 8192
  int page_rows = 16;  // positions of the target in one page; from 16 on rounded down to multiples of 8
  std::int64_t memory_mib = 256;  // MiB of all caches together
  std::int64_t logits_mib = 0;    // MiB of a step's logits, the draft's distributions and raw copies: bounds the nodes
                                  // of its trees; 0: no bound
  int pages = 0;                  // of the pool; 0: as many as fit into memory_mib
  bool reuse_prefixes = true;     // shares full pages of equal prefixes
  bool check = false;             // runs KvCache::check() of every cache after every step, and adds up q of every
                                  // tree, not only of the first ones
};

struct Request {
  std::vector<Token> prompt;
  Limits limits;
  Sampling sampling;
  std::uint64_t stream = 0;  // names the draws: equal requests with equal streams and seeds give equal results
  // Called with the tokens of each round. An exception of it fails the request, as one of its stop rule does.
  std::function<void(const Sequence&, std::span<const Token>)> on_tokens;
  // A request with the same prompt that was submitted before. This one begins when that prompt has been read, and
  // shares its full pages. 0: none.
  SequenceId sample_of = 0;
  std::string category = {};  // what drafters and policies are told of it: Sequence::category
};

// The target as an engine caches it whose drafter needs these states beside keys and values.
ModelInfo as_served(ModelInfo target, const Needs& needs);
// The pages of an engine's pool, `options.pages` or as many as fit into `memory_mib`. More memory than is free is an
// Error.
// `target`: as_served().
int pool_pages(const EngineOptions& options, const ModelInfo& target, const Backend& backend);
// What an engine of these options, with so many pages, refuses of a request whatever it serves besides (Engine::submit
// names it) is an Error.
void expect_servable(const Request& request, const ModelInfo& target, const EngineOptions& options, int pages);

class Engine : private Scheduler::Memory {
 public:
  // An unknown name or option, options out of range, or a verifier that is not sound for what the drafter proposes, is
  // an Error. `load`: loads models for components. `kept`: objects that components share between engines; absent: they
  // end with this engine. `backend` and `registries` must outlive the engine.
  Engine(Backend& backend, std::shared_ptr<Model> target, const Registries& registries, const ComponentConfigs& configs,
         const EngineOptions& options, Host::Load load = {}, std::shared_ptr<Kept> kept = {});
  ~Engine() override;
  // Of rank 0 of a divided target, before anything else: the engines of the other ranks do from now on what this one is
  // asked. Requests are then submitted between steps, and a failed step is the last one: the next is an Error.
  void lead(std::unique_ptr<OtherRanks> others);

  // Queues a request. An empty prompt, one that leaves no position of the model's context, a token outside the
  // vocabulary, a sampling option out of range or a sequence that can never fit into the pool is an Error.
  // `max_new_tokens` is cut to the context.
  SequenceId submit(Request request);
  // The same Errors, without submitting it. May be called while another thread takes steps.
  void expect_servable(const Request& request) const {
    foretoken::expect_servable(request, served_, options_, pool_.pages());
  }
  // Ends a request at the next step, with Finish::cancelled. An unknown id is ignored.
  void cancel(SequenceId id);
  // Whether no request is waiting or running, and none that ended is still to be returned.
  bool idle() const { return queues_.waiting.empty() && queues_.running.empty() && finished_.empty(); }
  // One step. A sequence that cannot continue ends alone, with Finish::failed and the reason: its distribution is not
  // finite, a drafter, policy or verifier throws when called for it alone, Drafter::observe throws for its outcome, a
  // drafter or policy throws when it forgets the sequence, or its tree or verdict is invalid. A failure of the whole
  // step is an Error: a failed forward, a component that throws for a batch but for no request of it alone, a wrong
  // number of trees or budgets, or an exception of LengthPolicy::observe. After an Error step() may be called again;
  // sequences that had ended are in the next report.
  StepReport step();
  // Lets go of the prefixes that all caches keep of requests that have ended: later requests read their prompts anew.
  void forget_prefixes();

  const Soundness& soundness() const { return traits_.soundness; }
  const Needs& needs() const { return traits_.needs; }  // the drafter's
  // Whether drafts may depend on other requests, on outcomes of their own, or on measured times.
  bool learns() const { return traits_.needs.learns || traits_.policy.learns; }
  const PagePool& pool() const { return pool_; }
  CachedModel& target() { return target_; }
  const Host& host() const { return host_; }
  // One sentence where the first drafts were accepted far less often than their own probabilities expect (FirstDrafts),
  // as those of a head that computes something else than it was trained for; else empty.
  std::string doubt() const { return first_drafts_.doubt(drafter_name_); }
  std::string notice() const;  // of the drafter, the policy and the models: Drafter::notice

 private:
  int unseen(const Sequence& sequence) override;
  bool reserve(const Sequence& sequence, int rows, bool evict_drafts) override;
  void release(Sequence& sequence) override;
  void forget_draft(Sequence& sequence);

  StepReport take_step();
  std::vector<DraftTree> draft(Plan& plan, StepReport& report);
  void choose_budgets(Plan& plan, StepReport& report);
  std::vector<DraftRequest> requests(Plan& plan);
  NoDraft no_draft(const Scheduled& s);
  int draft_unseen(const Sequence& sequence);
  template <class InputsOf, class Call> auto call_component(Plan& plan, const std::string& who, StepReport& report,
                                                            const InputsOf& inputs_of, const Call& call);
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
  StatedTraits traits_;
  ModelInfo served_;  // as_served()
  PagePool pool_;
  CachedModel target_;
  Host host_;
  DraftReadback draft_readback_;
  Judging judging_;
  FirstDrafts first_drafts_;
  std::unique_ptr<Drafter> drafter_;
  std::unique_ptr<LengthPolicy> policy_;
  std::unique_ptr<Verifier> verifier_;
  Budget most_;  // the policy's largest budget, cut to what an engine drafts
  Judging::Wanted wanted_;
  std::string drafter_name_, policy_name_, verifier_name_;  // for messages
  Scheduler scheduler_{1, {1}};                             // replaced when the policy is known
  Queues queues_;
  std::vector<Sequence> finished_;  // whole, that no report has handed out
  SequenceId next_id_ = 1;
  std::vector<SequenceId> cancelled_;  // since the last step, where there are other ranks
  std::unique_ptr<OtherRanks> others_;
};

}  // namespace foretoken
