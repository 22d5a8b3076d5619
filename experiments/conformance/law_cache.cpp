#include <algorithm>

#include "experiments/conformance/laws.h"

namespace foretoken::conformance {
namespace {

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
