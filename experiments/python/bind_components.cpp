#include <memory>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "experiments/python/arrays.h"
#include "experiments/python/bindings.h"
#include "experiments/python/components.h"
#include "kernels/error.h"

namespace foretoken::python {

using nb::literals::operator""_a;

namespace {

// A NumPy array of one number for each request.
template <class T, class F> nb::object column(const DraftBatch& batch, const F& of) {
  std::vector<T> values;
  values.reserve(std::size_t(batch.size()));
  for (int i = 0; i < batch.size(); ++i) values.push_back(T(of(batch.request(i))));
  return owned(std::move(values));
}

nb::object tokens_of(DraftBatch& batch, int i) {
  const History& history = batch.history(i);
  using Held = std::shared_ptr<Token[]>;
  auto* const held = new Held(history.data);
  const nb::capsule owner(held, [](void* p) noexcept { delete static_cast<Held*>(p); });
  return viewed<Token>(history.data.get(), {history.size}, owner);
}

nb::list all_tokens(DraftBatch& batch) {
  nb::list all;
  for (int i = 0; i < batch.size(); ++i) all.append(tokens_of(batch, i));
  return all;
}

void guess(DraftBatch& batch, nb::handle given) {
  const Integers tokens = integers_of(given, "the guessed tokens", kFillRows);
  if (tokens.rank() < 1 || tokens.rank() > 2 || tokens.shape[0] != std::size_t(batch.size()))
    throw Error("guess() needs tokens [requests, length], here [" + std::to_string(batch.size()) + ", any]");
  batch.guess(tokens.values, tokens.rank() == 1 ? 1 : int(tokens.shape[1]));
}

Places places_of(nb::handle requests, nb::handle parents) {
  return {integers_of(requests, "the requests").values, integers_of(parents, "the parents").values};
}

nb::object guess_below(DraftBatch& batch, nb::handle requests, nb::handle parents, nb::handle tokens) {
  return owned(batch.guess_below(places_of(requests, parents), integers_of(tokens, "the guessed tokens").values));
}

nb::object draw(DraftBatch& batch, nb::handle logits, std::optional<float> temperature) {
  const Tensor given = floats_of(logits, "the logits");
  std::vector<Token> tokens;
  {
    const nb::gil_scoped_release unlocked;
    tokens = batch.draw(given, temperature);
  }
  return owned(std::move(tokens));
}

Drawn drawn_of(const std::string& how) {
  for (const Drawn d : {Drawn::chain, Drawn::independent, Drawn::without_replacement, Drawn::marginals})
    if (how == name_of(d)) return d;
  throw Error("siblings are drawn 'chain' (an only child), 'independent', 'without_replacement' or 'marginals', not '" +
              how + "'");
}

nb::tuple draw_below(DraftBatch& batch, nb::handle requests, nb::handle parents, nb::handle logits, int children,
                     const std::string& how, std::optional<float> temperature) {
  const Places places = places_of(requests, parents);
  const Tensor given = floats_of(logits, "the logits");
  DraftBatch::Grown grown;
  {
    const nb::gil_scoped_release unlocked;
    grown = batch.draw_below(places, given, {children, drawn_of(how), temperature});
  }
  const std::size_t rows = places.requests.size(), columns = std::size_t(children);
  return nb::make_tuple(owned(std::move(grown.nodes), {rows, columns}),
                        owned(std::move(grown.tokens), {rows, columns}));
}

nb::object hidden(DraftBatch& batch, int i, int begin) {
  Tensor states;
  {
    const nb::gil_scoped_release unlocked;
    states = batch.hidden(i, begin);
  }
  return array_of(states);
}

void bind_draft_columns(nb::class_<DraftBatch>& c) {
  c.def("__len__", &DraftBatch::size)
      .def_prop_ro(
          "ids",
          [](const DraftBatch& b) {
            return column<std::uint64_t>(b, [](const DraftRequest& r) { return r.sequence->id; });
          },
          "u64 [requests]: names of the sequences, till forget() tells of their end.")
      .def_prop_ro(
          "last",
          [](const DraftBatch& b) {
            return column<std::int32_t>(b, [](const DraftRequest& r) { return r.sequence->last(); });
          },
          "i32 [requests]: the last token of each, the root of its tree.")
      .def_prop_ro(
          "lengths",
          [](const DraftBatch& b) {
            return column<std::int32_t>(b, [](const DraftRequest& r) { return r.sequence->length(); });
          },
          "i32 [requests]: tokens of prompt and output.")
      .def_prop_ro(
          "nodes",
          [](const DraftBatch& b) {
            return column<std::int32_t>(b, [](const DraftRequest& r) { return r.budget.or_root().nodes; });
          },
          "i32 [requests]: the most nodes of each tree, the root among them.")
      .def_prop_ro(
          "depth",
          [](const DraftBatch& b) {
            return column<std::int32_t>(b, [](const DraftRequest& r) { return r.budget.or_root().depth; });
          },
          "i32 [requests]: the most levels below the root.")
      .def_prop_ro(
          "chain",
          [](const DraftBatch& b) {
            return column<std::int32_t>(b, [](const DraftRequest& r) { return r.budget.chain(); });
          },
          "i32 [requests]: the most tokens of a chain.")
      .def_prop_ro(
          "temperature",
          [](const DraftBatch& b) {
            return column<float>(b, [](const DraftRequest& r) { return r.sequence->sampling.temperature; });
          },
          "f32 [requests]: of each sequence's sampling; 0: greedy.");
}

void bind_drafts(nb::module_& m) {
  nb::class_<DraftBatch> c(m, "DraftBatch", "The requests of one call of draft(), and the trees that grow for them.");
  bind_draft_columns(c);
  c.def("tokens", &tokens_of, "request"_a, "i32 [length], read-only: prompt and output of one sequence. May be kept.")
      .def("all_tokens", &all_tokens, "tokens() of every request.")
      .def(
          "tails", [](const DraftBatch& b, int count) { return array_of(b.tails(count)); }, "count"_a,
          "i32 [requests, count]: the last tokens of each; -1 before the first.")
      .def("states", &DraftBatch::states, "request"_a, "How many positions of a sequence have hidden states.")
      .def("hidden", &hidden, "request"_a, "begin"_a = 0,
           "f32 [states - begin, taps * width]: the target's hidden states at positions from `begin` on.")
      .def("guess", &guess, "tokens"_a,
           "Appends guesses to the first path of each tree: integers [requests, length] or [requests], each row up to\n"
           "its first -1 and as far as its budget goes.")
      .def("guess_below", &guess_below, "requests"_a, "parents"_a, "tokens"_a,
           "Guesses one token below each given node: integers [places]. i32 [places]: the nodes; -1: no budget left.")
      .def(
          "draw", &draw, "logits"_a, "temperature"_a.none() = nb::none(),
          "Draws a token below the first path of each tree: float32 [requests, vocab]; an array that owns\n"
          "its memory and has one name is read-only till the step ends, another is copied. Warped as the sequence is,\n"
          "or by `temperature`. i32 [requests]; -1: no budget left.")
      .def("draw_below", &draw_below, "requests"_a, "parents"_a, "logits"_a, "children"_a = 1,
           "how"_a = "without_replacement", "temperature"_a.none() = nb::none(),
           "Draws siblings below each given node: logits float32 [places, vocab]. (nodes, tokens), both i32\n"
           "[places, children]; -1: no budget left.");
}

template <class Batch> struct Column {
  std::vector<std::int32_t> Batch::* member;
  template <class C> static void add(C& c, const char* name, std::vector<std::int32_t> Batch::* m, const char* doc) {
    c.def_prop_ro(
        name,
        [m](nb::handle self) {
          const std::vector<std::int32_t>& v = nb::cast<const Batch&>(self).*m;
          return viewed<std::int32_t>(v.data(), {v.size()}, self);
        },
        doc);
  }
};

template <class Batch, class C> void add_ids(C& c) {
  c.def_prop_ro(
      "ids",
      [](nb::handle self) {
        const std::vector<std::uint64_t>& v = nb::cast<const Batch&>(self).ids;
        return viewed<std::uint64_t>(v.data(), {v.size()}, self);
      },
      "u64 [sequences]");
  c.def("__len__", [](const Batch& b) { return b.ids.size(); });
}

void bind_outcomes(nb::module_& m) {
  nb::class_<OutcomeBatch> c(m, "OutcomeBatch", "What became of the trees of one step, behind one another.");
  add_ids<OutcomeBatch>(c);
  using Add = Column<OutcomeBatch>;
  Add::add(c, "offsets", &OutcomeBatch::offsets,
           "i32 [sequences + 1]: nodes of tree i are offsets[i] to offsets[i + 1].");
  Add::add(c, "tokens", &OutcomeBatch::tokens, "i32 [nodes]: the root, then the draft; -1: absent.");
  Add::add(c, "parents", &OutcomeBatch::parents, "i32 [nodes]: within the tree; -1: of the root.");
  Add::add(c, "accepted", &OutcomeBatch::accepted, "i32 [sequences]: accepted nodes.");
  Add::add(c, "emitted", &OutcomeBatch::emitted, "i32 [tokens]: the accepted tokens and the target's own, of all.");
  Add::add(c, "emitted_offsets", &OutcomeBatch::emitted_offsets, "i32 [sequences + 1]");
  c.def_prop_ro(
      "ranks",
      [](nb::handle self) {
        const auto& b = nb::cast<const OutcomeBatch&>(self);
        const auto width = std::size_t(b.width);
        return viewed<std::int32_t>(b.ranks.data(), {width == 0 ? 0 : b.ranks.size() / width, width}, self);
      },
      "i32 [nodes, ranks]: the target's most probable tokens after each node, as many as 'ranks' asked for.");
}

void bind_policies(nb::module_& m) {
  nb::class_<PolicyBatch> c(m, "PolicyBatch", "The sequences of one call of budgets(), by what is past alone.");
  add_ids<PolicyBatch>(c);
  using Add = Column<PolicyBatch>;
  Add::add(c, "lengths", &PolicyBatch::lengths, "i32 [sequences]: tokens of prompt and output.");
  Add::add(c, "rounds", &PolicyBatch::rounds, "i32 [sequences]: verified so far.");
  Add::add(c, "drafted", &PolicyBatch::drafted, "i32 [sequences]: nodes in the last round.");
  Add::add(c, "accepted", &PolicyBatch::accepted, "i32 [sequences]: of these.");
  Add::add(c, "room_nodes", &PolicyBatch::room_nodes, "i32 [sequences]: the most nodes that this step allows.");
  Add::add(c, "room_depth", &PolicyBatch::room_depth, "i32 [sequences]: the most levels.");
  c.def_prop_ro(
      "acceptance",
      [](nb::handle self) {
        const std::vector<double>& v = nb::cast<const PolicyBatch&>(self).acceptance;
        return viewed<double>(v.data(), {v.size()}, self);
      },
      "f64 [sequences]: accepted over tested levels of all rounds; -1: none was tested.");
}

void bind_steps(nb::module_& m) {
  nb::class_<StepBatch> c(m, "StepBatch", "One step: its sequences, its rows and its times.");
  add_ids<StepBatch>(c);
  using Add = Column<StepBatch>;
  Add::add(c, "drafted", &StepBatch::drafted, "i32 [sequences]");
  Add::add(c, "tested", &StepBatch::tested, "i32 [sequences]: levels.");
  Add::add(c, "accepted", &StepBatch::accepted, "i32 [sequences]");
  Add::add(c, "emitted", &StepBatch::emitted, "i32 [sequences]: tokens.");
  c.def_ro("rows", &StepBatch::rows).def_ro("waiting", &StepBatch::waiting).def_ro("running", &StepBatch::running);
  c.def_ro("recorded", &StepBatch::recorded);
  c.def_prop_ro(
      "seconds",
      [](const StepBatch& b) {
        nb::dict d;
        d["draft"] = b.phases.draft_forward + b.phases.draft_other;
        d["target"] = b.phases.target_forward;
        d["verify"] = b.phases.verify;
        d["total"] = b.phases.total;
        return d;
      },
      "Of this step, by phase: draft, target, verify, total.");
}

}  // namespace

void bind_components(nb::module_& m) {
  bind_drafts(m);
  bind_outcomes(m);
  bind_policies(m);
  bind_steps(m);
  m.def("register_bench_drafter", &register_bench_drafter, "name"_a);
  m.def(
      "register",
      [](const std::string& kind, const std::string& name, const std::string& summary, const std::string& source,
         const std::string& options, const std::string& examples, const std::string& file, const std::string& hash,
         nb::object make, nb::object traits) {
        const Registration r{name, summary, source, options, examples, file, hash, std::move(make), std::move(traits)};
        kind == "drafter" ? register_drafter(r) : register_policy(r);
      },
      "kind"_a, "name"_a, "summary"_a, "source"_a, "options"_a, "examples"_a, "file"_a, "hash"_a, "make"_a, "traits"_a);
}

}  // namespace foretoken::python
