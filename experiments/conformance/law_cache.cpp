#include <algorithm>
#include <map>

#include "experiments/conformance/laws.h"
#include "kernels/host_backend.h"

namespace foretoken::conformance {
namespace {

std::string bytes_of(const Tensor& t) { return {static_cast<const char*>(t.raw()), std::size_t(t.bytes())}; }

// How two trees differ; empty if they are equal.
std::string difference(const DraftTree& a, const DraftTree& b) {
  if (a.nodes != b.nodes) return std::to_string(a.nodes) + " nodes instead of " + std::to_string(b.nodes);
  for (int n = 1; n < a.nodes; ++n) {
    const std::string node = "node " + std::to_string(n);
    if (*a.tokens.row<Token>(n) != *b.tokens.row<Token>(n))
      return node + " is " + std::to_string(*a.tokens.row<Token>(n)) + " instead of " +
             std::to_string(*b.tokens.row<Token>(n));
    if (*a.parents.row<std::int32_t>(n) != *b.parents.row<std::int32_t>(n) ||
        *a.q.drawn.row<std::uint8_t>(n) != *b.q.drawn.row<std::uint8_t>(n))
      return node + " has another parent or was drawn otherwise";
  }
  if (a.q.distributions.size() != b.q.distributions.size()) return "another number of distributions";
  for (std::size_t n = 0; n < a.q.distributions.size(); ++n) {
    if (bool(a.q.distributions[n]) != bool(b.q.distributions[n])) return "a distribution is missing";
    if (a.q.distributions[n] && (bytes_of(a.q.distributions[n].logits) != bytes_of(b.q.distributions[n].logits) ||
                                 bytes_of(a.q.distributions[n].rows) != bytes_of(b.q.distributions[n].rows)))
      return "the distribution after node " + std::to_string(n) + " differs";
  }
  return "";
}

// Rows [0, n) of every layer of a sequence's table, keys and values with their scales, as bytes.
std::string rows_of(Backend& backend, const KvCache& cache, SequenceId id, int n) {
  std::string all;
  const Tensor pool = cache.layers().front().pool, page = Tensor::host({1, pool.dim(1)}, DType::u8);
  const int page_rows = cache.layers().front().page_rows;
  for (int begin = 0; begin < n; begin += page_rows) {
    backend.copy(pool.rows(cache.held(id).table[std::size_t(begin / page_rows)], 1), page);
    for (const KvLayer& kv : cache.layers())
      for (const KvPlane& plane : KvPlanes(kv))
        for (int h = 0; h < kv.kv_heads; ++h)
          all.append(page.data<char>() + plane.begin + h * page_rows * plane.bytes,
                     std::size_t(std::min(page_rows, n - begin) * plane.bytes));
  }
  return all;
}

// Feeds the first n tokens at once to an empty cache.
std::string fresh_rows(Backend& backend, std::shared_ptr<Model> model, const KvCache& like, const Sequence& sequence,
                       int n) {
  const std::int64_t page_bytes = like.layers().front().pool.dim(1);
  PagePool pool(backend, page_bytes, like.pages_for(n));
  CachedModel fresh(backend, std::move(model), pool, false);
  (void)fresh.unseen(sequence);
  (void)fresh.reserve(sequence, n);
  const Segment whole{&sequence, n, nullptr, 0};
  (void)fresh.run({&whole, 1});
  const std::string rows = rows_of(backend, fresh.cache(), sequence.id, n);
  fresh.forget(sequence);
  return rows;
}

void check_cache(Backend& backend, CachedModel& cached, const Sequence& sequence, Finding& f) {
  KvCache& cache = cached.cache();
  if (cache.confirmed(sequence.id) == 0) return;  // preempted, or never fed
  const int held = cache.settle(sequence);
  cache.compact();
  const std::string prefix = cached.info().name + ", sequence " + std::to_string(sequence.id) + " of " +
                             std::to_string(sequence.length()) + " tokens: ";
  const int pages = int(cache.held(sequence.id).table.size());
  if (pages != cache.pages_for(held))
    f.fail(prefix + std::to_string(pages) + " pages hold " + std::to_string(held) + " rows");
  if (rows_of(backend, cache, sequence.id, held) != fresh_rows(backend, cached.model(), cache, sequence, held))
    f.fail(prefix + "keys and values differ from a fresh prefill's");
  ++f.cases;
}

}  // namespace

Finding memory(const Subject& subject, const Scenario& scenario, HostBackend& backend, const Models& models,
               std::span<const TestRequest> requests) {
  Finding f{.what = subject.text()};
  const auto compare = [&](Host&, std::span<const DraftRequest> draft_requests, std::span<const DraftTree> trees) {
    for (std::size_t i = 0; i < draft_requests.size(); ++i) {
      if (!draft_requests[i].budget.drafts()) continue;
      PagePool pool(backend, models.target->info().kv.page_bytes(scenario.engine.page_rows), 256);
      Host host(backend, pool, models.target->info(), models.load, false, {models.target, &subject.registries});
      const auto fresh = subject.registries.drafters.make(subject.configs.drafter, host);
      DraftRequest request = draft_requests[i];
      request.rows = 1 << 20;
      const std::string how = difference(trees[i], fresh->draft({&request, 1}).front());
      if (!how.empty())
        f.fail("sequence " + std::to_string(request.sequence->id) + " at length " +
               std::to_string(request.sequence->length()) + ": " + how);
      fresh->forget(*request.sequence);
      ++f.cases;
    }
  };
  const RunOutcome outcome = run_scenario(watched(subject, compare), scenario, backend, models, requests);
  f.accepted = outcome.accepted, f.rejected = outcome.rejections;
  return f;
}

Finding cache(const Subject& subject, const Scenario& scenario, Backend& backend, const Models& models,
              std::span<const TestRequest> requests) {
  Finding f{.what = subject.text()};
  const RunOutcome outcome =
      run_scenario(subject, scenario, backend, models, requests,
                   [&](Engine& engine, const StepReport&, std::span<const Sequence* const> running) {
                     for (const Sequence* s : running) {
                       check_cache(backend, engine.target(), *s, f);
                       for (const auto& c : engine.host().caches()) check_cache(backend, *c, *s, f);
                     }
                   });
  if (outcome.pages_left != 0) f.fail(std::to_string(outcome.pages_left) + " pages are still held at the end");
  f.accepted = outcome.accepted, f.rejected = outcome.rejections;
  return f;
}

}  // namespace foretoken::conformance
