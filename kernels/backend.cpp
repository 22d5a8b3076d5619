#include "kernels/backend.h"

#include <algorithm>
#include <chrono>

#include "kernels/error.h"

namespace foretoken {

double host_clock() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Mirror Backend::mirror(std::int64_t bytes) {
  const Tensor memory = Tensor::host({bytes}, DType::u8);
  return {memory, memory};
}

Mark Backend::mark() { return {clock(), -1}; }

void expect_draws(const Distributions& distributions, std::span<const TokenDraw> draws, const Tensor& to) {
  const int rows = distributions.count();
  if (to && (to.dtype() != DType::i32 || to.dim(0) != std::int64_t(draws.size())))
    throw Error("draw: expected memory for " + std::to_string(draws.size()) + " tokens of type I32, got " +
                name_of(to.dtype()) + " " + to.shape().text() + "; give one element for each draw");
  for (std::size_t i = 0; i < draws.size(); ++i) {
    const TokenDraw& draw = draws[i];
    const std::int64_t row = draw.row == -1 ? std::int64_t(i) : draw.row;
    const auto refuse = [&](const std::string& why) { throw Error("draw: number " + std::to_string(i) + " " + why); };
    if (row < 0 || row >= rows)
      refuse("is of row " + std::to_string(row) + " of " + std::to_string(rows) +
             " distributions; set TokenDraw::row, or draw once a row");
    if (draw.siblings < 1) refuse("asks for no token; set TokenDraw::siblings to at least 1");
    if (!draw.to && (!to || draw.siblings > 1))
      refuse("has no destination for its tokens; set TokenDraw::to, which siblings require");
    const std::uint64_t more = draw.siblings - 1u, node = draw.name.node + more, index = draw.name.index + more;
    if (!draw.race && (node > DrawName::kMostNode || index > DrawName::kMostIndex))
      refuse("is named node " + std::to_string(node) + ", index " + std::to_string(index) + ", but nodes are below " +
             std::to_string(DrawName::kMostNode + 1) + " and indices below " +
             std::to_string(DrawName::kMostIndex + 1) + "; give further draws a scope of their own (Draws::within)");
  }
}

void expect_ranks(const Distributions& raw, int k, const Tensor& tokens, const Tensor& q) {
  const Shape wanted{raw.count(), k};
  if (k < 1 || tokens.shape() != wanted || q.shape() != wanted || tokens.dtype() != DType::i32 ||
      q.dtype() != DType::f32)
    throw Error("rank: expected tokens I32 and probabilities F32 of " + wanted.text() + ", got " +
                name_of(tokens.dtype()) + " " + tokens.shape().text() + " and " + name_of(q.dtype()) + " " +
                q.shape().text() + "; give k columns, at least one, for each distribution");
}

std::int64_t ExpertWeights::bytes() const {
  std::int64_t all = prepared ? prepared->bytes() : 0;
  for (const Weight& w : matrices) all += w ? w.bytes() : 0;
  return all;
}

ExpertWeights Backend::group_experts(std::vector<Weight> matrices) {
  if (matrices.empty()) throw Error("group_experts: there are no experts; give a matrix of each");
  const std::int64_t out = matrices.front().out, in = matrices.front().in;
  for (const Weight& w : matrices)
    if (w.out != out || w.in != in)
      throw Error("group_experts: matrices of " + Shape{out, in}.text() + " and of " + Shape{w.out, w.in}.text() +
                  "; those of all experts must have one shape");
  return {out, in, std::move(matrices), nullptr};
}

Tensor Backend::zeros(Shape shape) {
  const Tensor all = Tensor::host(shape, DType::f32);
  std::fill_n(all.data<float>(), all.elements(), 0.0f);
  return upload(all);
}

Routing Backend::held_experts(const Routing&, int, int) {
  throw Error("the device " + name() + " cannot divide experts among ranks; set \"expert\" of \"parallel\" to 1");
}

void Backend::all_reduce(Tensor, const Rank&) {
  throw Error("the device " + name() + " cannot add up over ranks; leave out \"parallel\"");
}

void expect_route(const Tensor& logits, const RoutingRules& r) {
  if (logits.rank() != 2 || logits.dtype() != DType::f32 || r.used < 1 || r.used > logits.dim(1))
    throw Error("route: " + std::to_string(r.used) + " experts of logits " + name_of(logits.dtype()) + " " +
                logits.shape().text() + "; give F32 [rows, experts], and use at least one of them and at most all");
  const std::int64_t experts = logits.dim(1), size = experts / std::max(r.groups, 1);
  if (r.groups < 1 || experts % r.groups || r.used_groups < 1 || r.used_groups > r.groups ||
      r.used_groups * size < r.used || (r.sums_two && r.groups > 1 && size < 2))
    throw Error("route: " + std::to_string(r.used_groups) + " of " + std::to_string(r.groups) + " groups of " +
                std::to_string(experts) + " experts, of which a row uses " + std::to_string(r.used) +
                "; groups must be of one size, and those that are used must have as many experts");
  if (r.correction && (r.correction.dtype() != DType::f32 || r.correction.shape() != Shape{experts}))
    throw Error("route: a correction " + r.correction.shape().text() + " of the scores of " + std::to_string(experts) +
                " experts; give one F32 number for each");
}

void expect_grouped(const Tensor& x, const Routing& routing, const ExpertWeights& experts) {
  if (x.rank() == 2 && x.dim(1) == experts.in && (x.dim(0) == routing.rows() || x.dim(0) == routing.count()) &&
      std::int64_t(experts.matrices.size()) == routing.experts)
    return;
  throw Error("grouped_linear: " + x.shape().text() + " for " + std::to_string(routing.rows()) + " rows that use " +
              std::to_string(routing.used) + " of " + std::to_string(routing.experts) + " experts, and matrices " +
              Shape{experts.out, experts.in}.text() + " of " + std::to_string(experts.matrices.size()) +
              "; give a row of inputs for each row or for each pair, and a matrix of each expert");
}

void expect_shares(const Tensor& x, const Tensor& y, const Routing& routing) {
  if (x.rank() == 2 && y.rank() == 2 && x.dim(0) == routing.rows() && y.dim(0) == routing.count() &&
      x.dim(1) == y.dim(1) && x.dtype() == DType::f32 && y.dtype() == DType::f32)
    return;
  throw Error("add_shares: " + y.shape().text() + " to " + x.shape().text() + " of " + std::to_string(routing.rows()) +
              " rows that use " + std::to_string(routing.used) + " experts each; give a row of F32 for each pair");
}

void expect_gated(const Tensor& x, const Tensor& y, const Tensor& logits) {
  if (x.rank() == 2 && x.shape() == y.shape() && logits.shape() == Shape{x.dim(0), 1} && x.dtype() == DType::f32 &&
      y.dtype() == DType::f32 && logits.dtype() == DType::f32)
    return;
  throw Error("add_gated: " + y.shape().text() + " with gates " + logits.shape().text() + " to " + x.shape().text() +
              "; give F32 rows of one shape and one gate for each");
}

void expect_silu_add(const Tensor& x, const Tensor& y) {
  if (x.rank() == 2 && y.rank() == 2 && x.dim(0) == y.dim(0) && x.dim(1) % y.dim(1) == 0 && x.dtype() == DType::f32 &&
      y.dtype() == DType::f32)
    return;
  throw Error("silu_add: " + std::string(name_of(x.dtype())) + " " + x.shape().text() +
              " takes rows of F32 that stand " + "a whole number of times in its own, not " + name_of(y.dtype()) + " " +
              y.shape().text());
}

void expect_recall(const Tensor& at, const Tensor& to, DType from) {
  if (to.rank() != 2 || at.dtype() != DType::u64 || at.elements() != to.dim(0))
    throw Error("recall: expected rows and one U64 address for each, got " + std::string(name_of(to.dtype())) + " " +
                to.shape().text() + " and " + name_of(at.dtype()) + " " + at.shape().text() +
                "; give as many addresses as rows");
  if (from != to.dtype() && !(from == DType::bf16 && to.dtype() == DType::f32))
    throw Error(std::string("recall: rows of ") + name_of(from) + " do not become " + name_of(to.dtype()) +
                "; the types must be equal, or BF16 becomes F32");
}

void expect_spread(const Tensor& from, const Tensor& ids, const Tensor& to) {
  if (from.rank() != 2 || to.rank() != 2 || from.dim(0) != to.dim(0) || from.dtype() != DType::f32 ||
      to.dtype() != DType::f32 || ids.dtype() != DType::i32 || ids.elements() != from.dim(1))
    throw Error("spread: expected F32 rows and an I32 id for each column, got " + from.shape().text() + ", " +
                ids.shape().text() + " and " + to.shape().text());
}

}  // namespace foretoken
