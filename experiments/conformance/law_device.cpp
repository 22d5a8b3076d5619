#include <algorithm>
#include <cmath>

#include "experiments/conformance/laws.h"
#include "framework/components/pairing.h"
#include "kernels/reference/reference_backend.h"

namespace foretoken::conformance {
namespace {

Tensor host_of(Backend& backend, const Tensor& t) {
  Tensor copy = Tensor::host(t.shape(), t.dtype());
  backend.copy(t, copy);
  backend.synchronize();
  return copy;
}

std::string dense_bytes(const Tensor& dense) {
  return {static_cast<const char*>(dense.raw()), std::size_t(dense.bytes())};
}

// Logits and warps of some chains, the same for every device.
struct Material {
  explicit Material(const DeviceCase& c)
      : c(c),
        p(Tensor::host({c.sequences * (c.nodes + 1), c.vocab}, DType::f32)),
        q(Tensor::host({c.sequences * c.nodes, c.vocab}, DType::f32)) {
    const Draws draws{c.seed, 0, 0, 0};
    for (Tensor* t : {&p, &q})
      for (std::int64_t i = 0; i < t->dim(0) * c.vocab; ++i)
        t->data<float>()[i] = std::floor(float(24 * draws.uniform({t == &p ? Role::draft : Role::accept,
                                                                   std::uint32_t(i & 4095), std::uint32_t(i >> 12)}))) /
                                  4 -
                              3;  // quarters, so that many logits tie
    // Drafts resemble the target, so that some are accepted.
    for (int i = 0; i < c.sequences; ++i)
      for (int n = 0; n < c.nodes; ++n)
        for (int x = 0; x < c.vocab; ++x)
          q.row<float>(i * c.nodes + n)[x] =
              0.25f * q.row<float>(i * c.nodes + n)[x] + p.row<float>(i * (c.nodes + 1) + n)[x];
  }
  Warp warp(int sequence) const {
    constexpr float kTemperatures[] = {0, 1, 0.7f, 1.3f};
    return {kTemperatures[sequence % 4], sequence % 3 == 1 ? c.vocab / 2 : 0, sequence % 5 == 2 ? 0.9f : 1,
            sequence % 7 == 3 ? 0.05f : 0};
  }
  Draws draws(int sequence) const { return {c.seed, std::uint64_t(sequence), 17, 0}; }
  std::vector<Warp> warps(int rows_each) const {
    std::vector<Warp> all;
    for (int i = 0; i < c.sequences; ++i) all.insert(all.end(), std::size_t(rows_each), warp(i));
    return all;
  }

  DeviceCase c;
  Tensor p, q;  // [sequences * (nodes + 1), vocab], [sequences * nodes, vocab]
};

// What a device computes from it: bytes, one string for each stage.
struct Made {
  std::string target_distributions, draft_distributions, tokens;
  std::vector<std::string> verdicts;
  long accepted = 0, rejected = 0;
};

Tensor draw_chains(Backend& backend, const Material& m, const Distributions& q, bool race) {
  std::vector<TokenDraw> draws;
  for (int i = 0; i < m.c.sequences; ++i)
    for (int n = 1; n <= m.c.nodes; ++n)
      draws.push_back({m.draws(i), {Role::draft, std::uint32_t(n), 0}, std::uint32_t(17 + n - 1), race});
  const Tensor tokens = backend.allocate({std::int64_t(draws.size())}, DType::i32);
  backend.draw(q, draws, tokens);
  return host_of(backend, tokens);
}

std::vector<DraftTree> chains(Backend& backend, const Material& m, const Distributions& q, const Tensor& tokens,
                              Drawn kind) {
  std::vector<DraftTree> trees;
  for (int i = 0; i < m.c.sequences; ++i) {
    DraftTree tree = DraftTree::rooted(backend, 0, m.c.nodes);
    for (int n = 1; n <= m.c.nodes; ++n) {
      const int row = i * m.c.nodes + n - 1;
      if (kind == Drawn::certain) {
        tree.guess(n - 1, tokens.data<Token>()[row]);
        continue;
      }
      backend.copy(tokens.rows(row, 1), tree.tokens.rows(n, 1));
      tree.grow(n - 1, kind);
      tree.q.distributions.push_back(q.slice(row, 1));
    }
    trees.push_back(std::move(tree));
  }
  return trees;
}

// What a rule is applied to: distributions, and tokens drawn from q.
struct Inputs {
  Distributions p, q, raw;
  Tensor tokens;
};

// Adds the verdicts of chains of one kind.
void judge(Verifier& verifier, Backend& backend, const Material& m, const Inputs& in, Drawn kind, Made& made) {
  const auto trees = chains(backend, m, in.q, in.tokens, kind);
  std::vector<Draws> draws;
  for (int i = 0; i < m.c.sequences; ++i) draws.push_back(m.draws(i));
  Staging staging(backend);
  const std::vector<std::uint32_t> positions(draws.size(), 17);
  const Trials trials(backend, trees, in.p, draws, positions, staging, in.raw);
  const Tensor verdicts = backend.allocate({m.c.sequences, std::int64_t(sizeof(Verdict))}, DType::u8);
  verifier.verify(backend, trials, verdicts);
  const Tensor written = host_of(backend, verdicts);
  for (int i = 0; i < m.c.sequences; ++i) {
    const auto& v = *reinterpret_cast<const Verdict*>(written.row<std::uint8_t>(i));
    made.verdicts.push_back(std::string("nodes drawn ") + name_of(kind) + ", " + std::to_string(v.length) +
                            " accepted, then " + std::to_string(v.next) + ": " +
                            text_of({v.tokens, std::size_t(v.length + 1)}));
    made.accepted += v.length, made.rejected += v.length < m.c.nodes;
  }
}

Made make(const Subject& subject, const Material& m, Backend& backend) {
  const Models models = table_models({.vocab = m.c.vocab});
  PagePool pool(backend, 64, 1);
  Host host(backend, pool, models.target->info(), models.load, false, {models.target, nullptr, &subject.registries});
  const auto verifier = subject.registries.verifiers.make(subject.configs.verifier, host);
  const Soundness soundness = subject.registries.verifiers.traits(subject.configs.verifier, host.target());
  Inputs in{backend.distributions(backend.upload(m.p), m.warps(m.c.nodes + 1)),
            backend.distributions(backend.upload(m.q), m.warps(m.c.nodes)),
            {},
            {}};
  if (soundness.raw) in.raw = backend.distributions(in.p.logits, std::vector<Warp>(std::size_t(in.p.count()), Warp{1}));
  in.tokens = draw_chains(backend, m, in.q, soundness.race);
  Made made{
      dense_bytes(host_of(backend, in.p.rows)), dense_bytes(host_of(backend, in.q.rows)), dense_bytes(in.tokens), {}};
  for (const Drawn kind : soundness.takes) judge(*verifier, backend, m, in, kind, made);
  return made;
}

}  // namespace

Finding same_verdicts(const Subject& subject, const DeviceCase& c, Backend& reference, Backend& other) {
  Finding f{.what = subject.text()};
  const std::string where = other.description() + ", vocabulary " + std::to_string(c.vocab) + ": ";
  const Material material(c);
  const Made a = make(subject, material, reference), b = make(subject, material, other);
  // distributions, draws, verdicts
  f.cases = c.sequences * (2 * c.nodes + 1) + c.sequences * c.nodes + long(a.verdicts.size());
  f.accepted = a.accepted, f.rejected = a.rejected;
  if (a.target_distributions != b.target_distributions || a.draft_distributions != b.draft_distributions)
    f.fail(where + "equal logits give other distributions");
  if (a.tokens != b.tokens) f.fail(where + "equal distributions give other draws");
  for (std::size_t i = 0; i < a.verdicts.size(); ++i)
    if (a.verdicts[i] != b.verdicts[i])
      f.fail(where + "verdict " + std::to_string(i) + " is [" + b.verdicts[i] + "] instead of [" + a.verdicts[i] + "]");
  return f;
}

// Of the drafter's models: a table has the same logits on every device, and what multiplies weights has them on devices
// that add in the reference's order.
bool equal_logits(Engine& engine, const Backend& device) {
  const auto is_table = [](const auto& c) { return dynamic_cast<const TableModel*>(c->model().get()) != nullptr; };
  return dynamic_cast<const ReferenceBackend*>(&device) || std::ranges::all_of(engine.host().caches(), is_table);
}

Finding same_on_devices(const Subject& subject, const Scenario& scenario, Backend& reference, Backend& other,
                        const Models& models, std::span<const TestRequest> requests) {
  Finding f{.what = subject.text()};
  bool equal = true;
  const RunOutcome a = run_scenario(subject, scenario, reference, models, requests),
                   b = run_scenario(subject, scenario, other, models, requests,
                                    [&](Engine& engine, const StepReport&, std::span<const Sequence* const>) {
                                      equal = equal && equal_logits(engine, other);
                                    });
  f.accepted = a.accepted, f.rejected = a.rejections;
  const auto is_greedy = [&](const TestRequest& r) { return r.sampling.value_or(scenario.sampling).temperature == 0; };
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (!equal && !is_greedy(requests[i])) continue;  // other drafts may lead to another output of the same law
    ++f.cases;
    if (a.outputs[i] != b.outputs[i])
      f.fail(other.description() + ": output " + std::to_string(i) + " is [" + text_of(b.outputs[i]) +
             "] instead of [" + text_of(a.outputs[i]) + "]");
  }
  if (!equal) return f;
  if (a.drafted != b.drafted || a.accepted != b.accepted)
    f.fail(other.description() + ": " + std::to_string(b.accepted) + " of " + std::to_string(b.drafted) +
           " drafts accepted, instead of " + std::to_string(a.accepted) + " of " + std::to_string(a.drafted));
  if (f.holds && a.draft_rows != b.draft_rows)
    f.fail(other.description() + ": models of the drafter are fed " + std::to_string(b.draft_rows) +
           " rows instead of " + std::to_string(a.draft_rows) + " for the same outputs");
  return f;
}

}  // namespace foretoken::conformance
