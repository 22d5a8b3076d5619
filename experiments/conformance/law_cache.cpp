#include <algorithm>

#include "experiments/conformance/laws.h"
#include "kernels/error.h"

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

// The states that a drafter says that it reads, in its order, and those of each that its options name: an engine does
// not say whose a cache is.
using Read = std::vector<std::vector<Tap>>;
void add_read(const Registries& registries, const nlohmann::json& config, const ModelInfo& target, Read& all) {
  const Entry<Drafter>& entry = registries.drafters.find(config);
  all.push_back(entry.traits(config, target).hidden);
  for (const Option& o : entry.options) {
    if (o.type == "drafter" && !config.at(o.name).is_null()) add_read(registries, config.at(o.name), target, all);
    if (o.type == "drafters")
      for (const nlohmann::json& inner : config.at(o.name)) add_read(registries, inner, target, all);
  }
}

// What a head is fed besides tokens: states of the target.
struct StatesFed {
  std::vector<std::uint64_t> addresses;
  RowInputs form;
};
StatesFed states_fed(const HiddenStates& states, std::span<const Tap> taps, int n) {
  StatesFed fed{{}, states.form(taps)};
  for (int at = 0; at < n; ++at) states.append(at, taps, fed.addresses);
  return fed;
}

// Feeds the first n tokens at once to an empty cache.
std::string fresh_rows(Backend& backend, const CachedModel& like, const StatesFed& fed, const Sequence& sequence,
                       int n) {
  const std::int64_t page_bytes = like.cache().layers().front().pool.dim(1);
  PagePool pool(backend, page_bytes, like.cache().pages_for(n));
  const bool bounds = like.cache().layers().front().bounds > 0;
  CachedModel fresh(backend, like.model(), pool, false, {like.taps().begin(), like.taps().end()}, bounds);
  (void)fresh.unseen(sequence);
  (void)fresh.reserve(sequence, n);
  const Segment whole{&sequence, n, nullptr, 0, fed.addresses};
  (void)fresh.run({&whole, 1}, fed.form);
  const std::string rows = rows_of(backend, fresh.cache(), sequence.id, n);
  fresh.forget(sequence);
  return rows;
}

// Whether a fresh prefill makes these rows, fed with some of `read`.
bool made_by_a_head(Backend& backend, Engine& engine, const CachedModel& cached, const Sequence& sequence, int n,
                    const std::string& rows, const Read& read) {
  return std::ranges::any_of(read, [&](const std::vector<Tap>& taps) {
    try {
      return rows == fresh_rows(backend, cached, states_fed(engine.target().hidden(sequence), taps, n), sequence, n);
    } catch (const Error&) {
      if (read.size() == 1) throw;
      return false;  // another's, of another width
    }
  });
}

void check_cache(Backend& backend, Engine& engine, CachedModel& cached, const Read& read, const Sequence& sequence,
                 Finding& f) {
  KvCache& cache = cached.cache();
  if (cache.confirmed(sequence.id) == 0) return;  // preempted, or never fed
  (void)cached.unseen(sequence);
  const int held = cache.confirmed(sequence.id);
  cache.compact();
  const std::string prefix = cached.info().name + ", sequence " + std::to_string(sequence.id) + " of " +
                             std::to_string(sequence.length()) + " tokens: ";
  const int pages = int(cache.held(sequence.id).table.size());
  if (pages != cache.pages_for(held))
    f.fail(prefix + std::to_string(pages) + " pages hold " + std::to_string(held) + " rows");
  const std::string rows = rows_of(backend, cache, sequence.id, held);
  const bool same = cached.model()->reads_states() ? made_by_a_head(backend, engine, cached, sequence, held, rows, read)
                                                   : rows == fresh_rows(backend, cached, {}, sequence, held);
  if (!same) f.fail(prefix + "keys and values differ from a fresh prefill's");
  ++f.cases;
}

}  // namespace

Finding cache(const Subject& subject, const Scenario& scenario, Backend& backend, const Models& models,
              std::span<const TestRequest> requests) {
  Finding f{.what = subject.text()};
  Read read;
  add_read(subject.registries, subject.registries.drafters.complete(subject.configs.drafter), models.target->info(),
           read);
  const RunOutcome outcome =
      run_scenario(subject, scenario, backend, models, requests,
                   [&](Engine& engine, const StepReport&, std::span<const Sequence* const> running) {
                     for (const Sequence* s : running) {
                       check_cache(backend, engine, engine.target(), read, *s, f);
                       for (const auto& c : engine.host().caches())  // what a view reads is the target's
                         if (c->cache().keeps()) check_cache(backend, engine, *c, read, *s, f);
                     }
                   });
  if (outcome.pages_left != 0) f.fail(std::to_string(outcome.pages_left) + " pages are still held at the end");
  f.accepted = outcome.accepted, f.rejected = outcome.rejections;
  return f;
}

}  // namespace foretoken::conformance
