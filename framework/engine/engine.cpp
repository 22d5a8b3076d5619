#include "framework/engine/engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "framework/engine/delivering.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

EngineOptions checked(const EngineOptions& o) {
  constexpr std::int64_t kMostMib = std::int64_t(1) << 24;
  if (o.batch < 1 || (o.step_rows != 0 && o.step_rows < o.batch))
    throw Error("the engine's \"step_rows\" must be at least its \"batch\", and \"batch\" at least 1");
  if (o.page_rows < 1) throw Error("the engine's \"page_rows\" must be at least 1, not " + std::to_string(o.page_rows));
  if (o.pages < 0) throw Error("the engine's \"pages\" must be positive, or 0 for as many as fit into \"memory_mib\"");
  if (o.pages == 0 && (o.memory_mib < 1 || o.memory_mib > kMostMib))
    throw Error("the engine's \"memory_mib\" must lie between 1 and " + std::to_string(kMostMib) + ", not " +
                std::to_string(o.memory_mib));
  return o;
}

std::int64_t page_bytes(const EngineOptions& options, const ModelInfo& target) {
  return target.kv.page_bytes(page_rows_of(options.page_rows));
}

// The most rows of roots and trees in a step, as "logits_mib" bounds them.
int judged_rows(const EngineOptions& o, int vocab) {
  constexpr int kMostRows = 1 << 20;
  // Bytes of one row: the target's logits, the draft's, and a raw copy.
  const std::int64_t bytes = 3 * std::int64_t(sizeof(float)) * vocab, rows = (o.logits_mib << 20) / bytes;
  return o.logits_mib == 0 ? kMostRows : int(std::clamp<std::int64_t>(rows, o.batch, kMostRows));
}

// Prompts have rows of their own beside the trees, which would leave them none, and places empty: 32 rows a place read
// prompts of 160 tokens for outputs of five rounds. 512: whole tiles of the matrix kernels.
Scheduler::Rows step_rows(const EngineOptions& o, const Budget& most, int judged) {
  if (o.step_rows > 0) return {.all = o.step_rows, .judged = judged};
  const int prompts = 32 * std::clamp(o.batch, 16, 256);
  return {.all = prompts + std::min(o.batch * most.nodes, judged), .judged = judged, .prompts = prompts};
}

// To be called in the handler of what `who` threw for a sequence. The first reason stays.
void fail(Sequence& sequence, const std::string& who) {
  std::string why = failure_of(who);
  if (sequence.finish != Finish::failed) sequence.fail(std::move(why));
}

// A sequence may have failed after its tokens were delivered.
void note_finishes(StepReport& report) {
  for (const Sequence& s : report.finished)
    if (const auto r = std::ranges::find(report.sequences, s.id, &SequenceReport::id); r != report.sequences.end())
      r->finish = s.finish;
}

}  // namespace

// Compares with the free memory first: an operating system may grant more than it has, and kill the process when the
// pages are written.
int pool_pages(const EngineOptions& options, const ModelInfo& target, const Backend& backend) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  if (options.pages > 0) return options.pages;
  const std::int64_t free = backend.free_memory() >> 20;  // MiB; 0: unknown
  if (free > 0 && options.memory_mib > free)
    throw Error("the engine's \"memory_mib\" is " + std::to_string(options.memory_mib) + ", but only " +
                std::to_string(free) + " MiB of memory are free; lower it");
  return int(std::min((options.memory_mib << 20) / page_bytes(options, target), kMost));
}

void expect_servable(const Request& request, const ModelInfo& m, const EngineOptions& options, int pages) {
  const int length = int(request.prompt.size());
  if (length == 0) throw Error("the prompt is empty; give at least one token");
  if (length >= m.positions)
    throw Error("the prompt has " + std::to_string(length) + " tokens, but the context of " + m.name + " is " +
                std::to_string(m.positions) + "; shorten it to leave room for at least one new token");
  for (const Token t : request.prompt)
    if (t < 0 || t >= m.vocab)
      throw Error("token " + std::to_string(t) + " of the prompt is outside the vocabulary of " + m.name + " (" +
                  std::to_string(m.vocab) + ")");
  if (request.limits.max_new_tokens < 1) throw Error("'max_new_tokens' must be at least 1");
  expect_sampling(request.sampling, m.vocab);
  const int most = length + std::min(request.limits.max_new_tokens, m.positions - length);
  if (KvCache::pages_of(most, KvCache::rows_in(page_bytes(options, m), m.kv)) > pages)
    throw Error(
        "the page pool is too small for one sequence of " + std::to_string(most) +
        " tokens; raise \"memory_mib\" of the engine (\"memory_fraction\" where that is set) or shorten the request");
}

ModelInfo as_served(ModelInfo target, const Needs& needs) {
  target.kv = with_taps(target, needs.hidden, needs.page_bounds);
  return target;
}

Engine::Engine(Backend& backend, std::shared_ptr<Model> target, const Registries& registries,
               const ComponentConfigs& configs, const EngineOptions& options, Host::Load load,
               std::shared_ptr<Kept> kept)
    : backend_(backend),
      configs_(configs),
      options_(checked(options)),
      traits_(fitting_traits(registries, configs, target->info())),
      served_(as_served(target->info(), traits_.needs)),
      pool_(backend, page_bytes(options, served_), pool_pages(options, served_, backend)),
      target_(backend, target, pool_, options.reuse_prefixes, traits_.needs.hidden, traits_.needs.page_bounds),
      host_(backend, pool_, target_.info(), std::move(load), options.reuse_prefixes,
            {target, traits_.needs.views_target ? &target_.cache() : nullptr, &registries, std::move(kept)}),
      draft_readback_(backend),
      judging_(backend) {
  const ModelInfo& info = target_.info();
  if (const Rank* const rank = target->rank()) backend.join(*rank);
  drafter_ = registries.drafters.make(configs.drafter, host_);
  policy_ = registries.policies.make(configs.policy, host_);
  verifier_ = registries.verifiers.make(configs.verifier, host_);
  drafter_name_ = "the drafter '" + configs.drafter["name"].get<std::string>() + "'",
  policy_name_ = "the policy '" + configs.policy["name"].get<std::string>() + "'";
  verifier_name_ = "the verifier '" + configs.verifier["name"].get<std::string>() + "'";
  const Budget& most = traits_.policy.most;
  most_ = Budget{std::min(most.nodes, kMaxNodes), std::min(most.depth, kMaxPath), most.confidence}.or_root();
  const Scheduler::Rows rows = step_rows(options_, most_, judged_rows(options_, info.vocab));
  options_.step_rows = rows.all;
  scheduler_ = {options_.batch, rows};
  wanted_ = {soundness().raw, needs().ranks, options_.check, soundness().acceptance != Acceptance::other};
}

Engine::~Engine() = default;

void Engine::lead(std::unique_ptr<OtherRanks> others) { others_ = std::move(others); }

SequenceId Engine::submit(Request request) {
  expect_servable(request);
  if (others_) others_->submit(request);
  const int length = int(request.prompt.size());
  request.limits.max_new_tokens = std::min(request.limits.max_new_tokens, target_.info().positions - length);
  auto active = std::make_unique<Active>();
  active->sequence = {
      next_id_++,     std::move(request.prompt), length, std::move(request.limits), std::move(request.sampling),
      request.stream, Finish::running,           {}};
  Sequence& q = active->sequence;
  q.tally = Tally(q.sampling.penalties(), q.sampling.logit_bias, q.tokens, q.sampling.constraint);
  q.category = std::move(request.category), active->on_tokens = std::move(request.on_tokens);
  const SequenceId id = q.id;
  Active* const first = options_.reuse_prefixes && request.sample_of > 0 ? queues_.find(request.sample_of) : nullptr;
  if (first && first->sequence.generated() == 0) active->sample_of = first->sequence.id, first->leads = true;
  queues_.waiting.push_back(std::move(active));
  return id;
}

// Also called in a callback of a step, of which other ranks know nothing.
void Engine::cancel(SequenceId id) {
  if (others_)
    cancelled_.push_back(id);
  else if (Active* const a = queues_.find(id))
    a->sequence.finish = Finish::cancelled;
}

StepReport Engine::step() {
  if (!others_) return take_step();
  const std::vector<SequenceId> cancelled = std::exchange(cancelled_, {});
  const auto step = [cancelled](Engine& engine) {
    for (const SequenceId id : cancelled)
      if (Active* const a = engine.queues_.find(id)) a->sequence.finish = Finish::cancelled;
    return engine.take_step();
  };
  return others_->beside([step](Engine& engine) { (void)step(engine); }, [&] { return step(*this); });
}

StepReport Engine::take_step() {
  StepReport report;
  const double begin = backend_.clock();
  const std::uint64_t waits = backend_.waits(), recordings = backend_.recordings(), unrecorded = backend_.unrecorded();
  retire(report);  // requests that were cancelled since the last step
  Plan plan = scheduler_.next(queues_, *this, most_);
  report.preempted = plan.preempted;
  drop_failed(plan, report);
  const double drafted_before = draft_seconds(), targeted_before = target_.books()->seconds();

  const Mark scheduled = backend_.mark();
  const std::vector<DraftTree> trees = draft(plan, report);
  std::vector<SequenceId> ids;
  for (const Scheduled& s : plan.scheduled) ids.push_back(s.active->sequence.id);
  draft_readback_.fetch(ids, trees, host_.caches());
  judging_.read_constrained(plan, trees);
  const Rank* const rank = target_.model()->rank();
  if (rank) expect_alike(plan, trees, *rank);
  const Mark drafted = backend_.mark();
  const Output out = forward(plan, trees, report);
  const Mark forwarded = backend_.mark();
  const Readback read = judging_.judge(plan, trees, out, {*verifier_, verifier_name_}, wanted_);
  const Mark judged = backend_.mark();
  backend_.synchronize();                 // the host's only wait in a step without constraints
  if (rank) rank->group->expect_whole();  // else what was drawn is of sums that another rank has not ended
  const double known = backend_.clock();

  draft_readback_.store();
  first_drafts_.add(read);
  wanted_.chances = wanted_.chances && !first_drafts_.measured();
  const std::vector<Outcome> outcomes =
      deliver({plan, trees, read, target_.info(), drafter_name_, verifier_name_}, queues_, report);
  tell_drafter(outcomes);
  retire(report);
  if (options_.check) check();

  Phases& p = report.phases;
  p.draft_forward = draft_seconds() - drafted_before;
  p.draft_other = backend_.seconds(scheduled, drafted) - p.draft_forward;
  p.target_forward = target_.books()->seconds() - targeted_before, p.verify = backend_.seconds(forwarded, judged);
  p.total = backend_.clock() - begin, p.deliver = p.total - (known - begin);
  p.schedule = p.total - p.deliver - p.forwards() - p.draft_other - p.verify;
  report.waits = int(backend_.waits() - waits), report.recorded = int(backend_.recordings() - recordings);
  report.unrecorded = int(backend_.unrecorded() - unrecorded);
  if (rank) agree_on_step(report, *rank);
  hand_out(report);
  return report;
}

std::string Engine::notice() const {
  std::string all;
  for (const std::string& sentence :
       {drafter_->notice(), policy_->notice(), host_.notice(), target_.model()->info().notice})
    if (!sentence.empty()) all += (all.empty() ? "" : "; ") + sentence;
  return all;
}

// The pool evicts what its pages keep when they are taken.
void Engine::forget_prefixes() {
  if (others_) others_->each([](Engine& engine) { engine.forget_prefixes(); });
  std::vector<PageId> taken;
  while (const std::optional<PageId> page = pool_.take()) taken.push_back(*page);
  for (auto page = taken.rbegin(); page != taken.rend(); ++page) pool_.drop(*page);
}

Output Engine::forward(const Plan& plan, std::span<const DraftTree> trees, StepReport& report) {
  std::vector<Segment> segments;
  segments.reserve(plan.scheduled.size());
  for (std::size_t i = 0; i < plan.scheduled.size(); ++i) {
    const Scheduled& s = plan.scheduled[i];
    segments.push_back({&s.active->sequence, s.chain, s.root ? &trees[i] : nullptr, 0});
    report.rows += s.chain + (s.root ? trees[i].nodes : 0);
  }
  return segments.empty() ? Output{} : target_.run(segments);
}

// What failed before the target's forward leaves the plan, and is reported all the same.
void Engine::drop_failed(Plan& plan, StepReport& report) {
  std::erase_if(plan.scheduled, [&](const Scheduled& s) {
    const Sequence& q = s.active->sequence;
    if (q.running()) return false;
    report.sequences.push_back({.id = q.id, .emitted = {}, .finish = q.finish});
    return true;
  });
}

// One outcome at a time: what is thrown concerns one sequence, and every other outcome is observed exactly once.
void Engine::tell_drafter(std::span<const Outcome> outcomes) {
  for (const Outcome& o : outcomes) {
    try {
      drafter_->observe({&o, 1});
    } catch (...) {
      fail(queues_.find(o.sequence->id)->sequence, drafter_name_);
    }
  }
}

void Engine::retire(StepReport& report) {
  const auto leave = [&](auto& queue) {  // whatever is thrown on the way, each sequence is in one place
    for (auto a = queue.begin(); a != queue.end();) {
      Sequence& q = (*a)->sequence;
      if (q.running()) {
        ++a;
        continue;
      }
      release(q);
      finished_.push_back(std::move(q));
      a = queue.erase(a);
    }
  };
  for (const auto& a : queues_.running)
    if (!a->sequence.running()) queues_.release_followers(*a);
  for (const auto& a : queues_.waiting)
    if (!a->sequence.running()) queues_.release_followers(*a);
  leave(queues_.running), leave(queues_.waiting);
  report.waiting = int(queues_.waiting.size()), report.running = int(queues_.running.size());
  report.pages_in_use = pool_.in_use();
}

// What drafter and policy throw about the whole step goes up; the sequences then come with the next report. A step that
// ran nothing does not ask it, so that they come even if it always throws.
void Engine::hand_out(StepReport& report) {
  report.finished.swap(finished_);
  try {
    note_finishes(report);
    if (!report.sequences.empty()) drafter_->observe_step(report), policy_->observe(report);
    for (Sequence& s : report.finished) {
      try {
        policy_->forget(s);
      } catch (...) {
        fail(s, policy_name_);
      }
    }
    note_finishes(report);
  } catch (...) {
    finished_.swap(report.finished);
    throw;
  }
}

int Engine::unseen(const Sequence& sequence) { return int(target_.unseen(sequence).size()); }

bool Engine::reserve(const Sequence& sequence, int rows, bool evict_drafts) {
  if (target_.reserve(sequence, rows)) return true;
  if (!evict_drafts) return false;
  // Drafters' caches are evicted before any sequence is preempted, the newest sequence's first. Drafters recompute them
  // when pages are free again.
  for (auto a = queues_.running.rbegin(); a != queues_.running.rend(); ++a) {
    forget_draft((*a)->sequence);
    if (target_.reserve(sequence, rows)) return true;
  }
  return false;
}

void Engine::release(Sequence& sequence) {
  target_.forget(sequence);
  forget_draft(sequence);
}

// Where the drafter throws, its models' caches give back what they hold without it.
void Engine::forget_draft(Sequence& sequence) {
  try {
    drafter_->forget(sequence), host_.expect_forgotten(sequence, drafter_name_);
  } catch (...) {
    fail(sequence, drafter_name_);
    for (const auto& c : host_.caches()) c->forget(sequence);
  }
}

void Engine::check() const {
  target_.cache().check();
  for (const auto& c : host_.caches()) c->cache().check();
}

}  // namespace foretoken
