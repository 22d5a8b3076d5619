#include "experiments/conformance/table_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/error.h"
#include "kernels/host_backend.h"

namespace foretoken::conformance {
namespace {

// splitmix64: one step.
std::uint64_t mix(std::uint64_t z) {
  z += 0x9E3779B97F4A7C15ull;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ z >> 27) * 0x94D049BB133111EBull;
  return z ^ z >> 31;
}

double unit(std::uint64_t h) { return double(h >> 11) * 0x1p-53; }

// Mean 0, deviation 1, within [-3, 3].
double bell(std::uint64_t h) { return (unit(h) + unit(mix(h ^ 1)) + unit(mix(h ^ 2)) - 1.5) * 2; }

Tensor on_host(Backend& backend, const Tensor& t) {
  if (!t || t.device().kind == Device::Kind::cpu) return t;
  Tensor copy = Tensor::host(t.shape(), t.dtype());
  backend.copy(t, copy);
  return copy;
}

}  // namespace

TableModel::TableModel(const Options& options) : options_(options) {
  info_ = {"table " + std::to_string(options.seed),
           options.vocab,
           options.positions,
           options.width,
           0,
           {1, 1, options.head_size, DType::f32},
           0x7ab1e,
           {},
           0};
}

std::span<const float> TableModel::logits(std::span<const Token> context) const {
  if (options_.order > 0 && int(context.size()) > options_.order) context = context.last(std::size_t(options_.order));
  std::uint64_t h = mix(options_.seed);
  for (const Token t : context) h = mix(h ^ std::uint64_t(t + 2));
  const auto [it, fresh] = table_.try_emplace(h);
  if (!fresh) return it->second;
  std::vector<float>& row = it->second;
  const int stays = int(mix(h ^ 77) % std::uint64_t(options_.vocab));
  for (int x = 0; x < options_.vocab; ++x) {
    const std::uint64_t g = mix(h + 1000003ull * std::uint64_t(x + 1));
    double kind = unit(mix(g)), size = options_.spread * bell(g);
    if (options_.perturb > 0) {
      size += options_.perturb * bell(mix(g ^ 9));
      if (unit(mix(g ^ 10)) < 0.3) kind = unit(mix(g ^ 11));
    }
    float logit = options_.uniform ? 0.0f : float(size);
    if (!options_.uniform && x != stays && kind < options_.impossible)
      logit = -1e4f;
    else if (!options_.uniform && x != stays && kind < 2 * options_.impossible)
      logit -= 14.0f;
    row.push_back(logit);
  }
  return row;
}

std::vector<double> probabilities(const Distribution& distribution) {
  std::vector<double> p;
  for (Token x = 0; x < distribution.vocab; ++x) p.push_back(distribution(x));
  return p;
}

std::vector<double> warped(std::span<const float> logits, const Warp& warp) {
  const int vocab = int(logits.size());
  return probabilities({logits.data(), normalize(logits.data(), vocab, warp), vocab});
}

std::vector<Token> TableModel::read_context(const Layout& layout, const KvLayer& kv, int row) const {
  const std::int32_t* table = layout.tables.row<std::int32_t>(layout.owner.data<std::int32_t>()[row]);
  const std::int32_t visible = layout.visible.data<std::int32_t>()[row];
  std::vector<Token> context;
  int next = 0;  // the position that the next slot should hold
  const auto see = [&](std::int32_t slot) {
    const auto* key = reinterpret_cast<const float*>(slot_address(kv, kv.keys, table, slot));
    const auto* value = reinterpret_cast<const float*>(slot_address(kv, kv.values, table, slot));
    const int at = int(key[1]);
    const bool may_skip = options_.gaps && slot % kv.page_rows == 0 && at % kv.page_rows == 0;
    const int depth = may_skip ? std::max(at, next) : next;
    next = depth + 1;
    if (options_.strict && (at != depth || int(value[0]) != depth || key[0] != value[1]))
      throw Error("table model: slot " + std::to_string(slot) + " should hold depth " + std::to_string(depth) +
                  " but holds the key of position " + std::to_string(key[1]) + " and the value of position " +
                  std::to_string(value[0]));
    context.push_back(Token(depth % 2 ? key[0] : value[1]) - 1);
  };
  for (std::int32_t s = 0; s < visible; ++s) see(s);
  for (int bit = 0; bit < 64 * layout.words; ++bit)
    if (layout.ancestors.row<std::uint64_t>(row)[bit / 64] >> (bit % 64) & 1u) see(visible + bit);
  if (options_.strict && next != layout.positions.data<std::int32_t>()[row] + 1)
    throw Error("table model: a row at position " + std::to_string(layout.positions.data<std::int32_t>()[row]) +
                " sees " + std::to_string(context.size()) + " slots, the last of position " + std::to_string(next - 1));
  return context;
}

Output TableModel::forward(Backend& backend, const Rows& rows, std::span<const KvLayer> kv) {
  expect_no_inputs(rows, info_.name);
  const int n = rows.layout.rows, width = options_.head_size;
  const Tensor tokens = on_host(backend, rows.tokens);
  Layout layout = rows.layout;
  for (Tensor* t :
       {&layout.positions, &layout.slots, &layout.owner, &layout.visible, &layout.ancestors, &layout.tables})
    *t = on_host(backend, *t);
  Tensor k = Tensor::host({n, width}, DType::f32), v = Tensor::host({n, width}, DType::f32);
  std::fill_n(k.data<float>(), n * width, 0.0f);
  std::fill_n(v.data<float>(), n * width, 0.0f);
  for (int r = 0; r < n; ++r) {
    k.row<float>(r)[0] = v.row<float>(r)[1] = float(tokens.data<Token>()[r] + 1);
    k.row<float>(r)[1] = v.row<float>(r)[0] = float(layout.positions.data<std::int32_t>()[r]);
  }
  backend.store(backend.upload(k), backend.upload(v), kv[0], rows.layout);
  if (layout.selection.width > 0) layout.tables = on_host(backend, selected(backend, tokens, kv[0], rows.layout));
  if (!rows.wanted && rows.taps.empty() && !rows.mass) return {};
  KvLayer cache = kv[0];
  cache.pool = on_host(backend, cache.pool);
  for (std::size_t i = 0; i < rows.taps.size(); ++i)
    store_tap(backend, backend.upload(states(layout, cache, rows.taps[i])), kv[1 + i], rows.layout);
  if (rows.mass) add_mass(backend, layout, cache, rows.mass);
  if (!rows.wanted) return {};
  if (options_.features)
    return {{}, backend.gather(backend.upload(states(layout, cache, *options_.features)), rows.wanted)};
  const Tensor wanted = on_host(backend, rows.wanted);
  Tensor out = Tensor::host({wanted.dim(0), options_.vocab}, DType::f32);
  for (std::int64_t i = 0; i < wanted.dim(0); ++i)
    std::ranges::copy(logits(read_context(layout, cache, wanted.data<std::int32_t>()[i])), out.row<float>(i));
  return {backend.upload(out)};
}

// By queries that follow from the rows' tokens, so that rows of other tokens select other pages.
Tensor TableModel::selected(Backend& backend, const Tensor& tokens, const KvLayer& kv, const Layout& layout) const {
  const Tensor q = Tensor::host({layout.rows, kv.head_size}, DType::f32);
  for (int r = 0; r < layout.rows; ++r) {
    std::uint64_t h = mix(options_.seed + 93 + std::uint64_t(tokens.data<Token>()[r] + 1));
    for (int i = 0; i < kv.head_size; ++i) q.row<float>(r)[i] = float(2 * unit(h = mix(h)) - 1);
  }
  return backend.select_pages(backend.upload(q), kv, layout);
}

// Whatever stands in a row's context changes every number of its state.
Tensor TableModel::states(const Layout& layout, const KvLayer& kv, Tap tap) const {
  const Tensor all = Tensor::host({layout.rows, options_.width}, DType::f32);
  for (int r = 0; r < layout.rows; ++r) {
    std::uint64_t h = mix(options_.seed + 31 + std::uint64_t(tap + 1));
    for (const Token t : read_context(layout, kv, r)) h = mix(h ^ std::uint64_t(t + 2));
    for (int i = 0; i < options_.width; ++i) all.row<float>(r)[i] = float(2 * unit(mix(h + std::uint64_t(i))) - 1);
  }
  return all;
}

// A number in [0, 1) for each row and page, by all tokens up to the row and by the page's number.
void TableModel::add_mass(Backend& backend, const Layout& layout, const KvLayer& kv, const Tensor& mass) const {
  Tensor all = Tensor::host(mass.shape(), DType::f32);
  backend.copy(mass, all);
  for (int r = 0; r < layout.rows; ++r) {
    std::uint64_t h = mix(options_.seed + 55);
    for (const Token t : read_context(layout, kv, r)) h = mix(h ^ std::uint64_t(t + 2));
    float* to = all.row<float>(layout.owner.data<std::int32_t>()[r]);
    for (int page = 0; page * kv.page_rows < layout.visible.data<std::int32_t>()[r]; ++page)
      to[page] += float(unit(mix(h + std::uint64_t(page))));
  }
  backend.copy(all, mass);
}

const Ends* TableModel::ends(Backend& backend) {
  const auto [at, fresh] = ends_.try_emplace(backend.serial());
  if (!fresh) return &at->second;
  std::uint64_t h = mix(options_.seed + 7);
  const auto numbers = [&](Shape shape, float scale, float offset) {
    const Tensor all = Tensor::host(shape, DType::f32);
    for (float& x : all.values<float>()) x = offset + scale * float(2 * unit(h = mix(h)) - 1);
    return all;
  };
  const Shape table{options_.vocab, options_.width};
  at->second = {backend.prepare(Weight::dense(numbers(table, 1, 0))),
                backend.upload(numbers({options_.width}, 0.2f, 1)), 1e-5f,
                backend.prepare(Weight::dense(numbers(table, 1, 0)))};
  return &at->second;
}

std::shared_ptr<Model> TableModel::part(const std::shared_ptr<Model>&, const LeftOut& left_out) {
  Options o = options_;
  if (!o.uniform) o.perturb += 0.5 * double(left_out.attention.size()) + 0.25 * double(left_out.feed_forward.size());
  o.gaps = left_out.pages;
  if (left_out.head) o.features = int(info_.kv.layers.size() - left_out.attention.size());
  return std::make_shared<TableModel>(o);
}

TableModel::Options named_table(const std::string& name, const TableModel::Options& target) {
  TableModel::Options o = target;
  if (name == "table:same") return o;
  if (name == "table:uniform")
    o.uniform = true;
  else if (name == "table:other")
    o.perturb = 1;
  else if (name == "table:far")
    o.seed += 200;
  else
    throw Error("unknown table model '" + name + "'; known: table:same, table:other, table:far, table:uniform");
  return o;
}

namespace {

// What the constraint does not allow after the output.
void forbid(std::vector<float>& logits, const Constraint& constraint, std::span<const Token> output) {
  Constraint::State state = constraint.start();
  for (const Token t : output) state = constraint.after(state, t);
  for (Token x = 0; x < int(logits.size()); ++x)
    if (constraint.after(state, x) == Constraint::kBroken)
      logits[std::size_t(x)] = -std::numeric_limits<float>::infinity();
}

}  // namespace

std::vector<double> target_distribution(const TableModel& target, std::span<const Token> context, int prompt,
                                        const Sampling& s) {
  const std::span<const float> raw = target.logits(context);
  std::vector<float> logits(raw.begin(), raw.end());
  const auto output = context.subspan(std::size_t(prompt));
  for (Token x = 0; x < int(logits.size()); ++x) {
    float& logit = logits[std::size_t(x)];
    for (const TokenBias& b : s.logit_bias)
      if (b.token == x) logit += b.bias <= -100 ? -std::numeric_limits<float>::infinity() : b.bias;
    if (std::ranges::find(context, x) != context.end())
      logit = logit > 0 ? logit / s.repetition_penalty : logit * s.repetition_penalty;
    const auto times = std::ranges::count(output, x);
    logit -= s.frequency_penalty * float(times);
    if (times > 0) logit -= s.presence_penalty;
  }
  if (s.constraint) forbid(logits, *s.constraint, output);
  return warped(logits, s.warp());
}

}  // namespace foretoken::conformance
