#include <algorithm>
#include <unordered_map>

#include <nanobind/stl/shared_ptr.h>

#include "experiments/python/arrays.h"
#include "experiments/python/bench_drafter.h"
#include "experiments/python/calls.h"
#include "experiments/python/components.h"
#include "experiments/python/making.h"
#include "framework/components/host.h"
#include "kernels/error.h"

namespace foretoken::python {

using nlohmann::json;

namespace {

void append(const Outcome& o, OutcomeBatch& to) {
  to.ids.push_back(o.sequence->id);
  for (int n = 0; n < o.tree->nodes; ++n) {
    to.tokens.push_back(*o.tree->known.row<Token>(n));
    to.parents.push_back(*o.tree->parents.row<std::int32_t>(n));
  }
  to.offsets.push_back(std::int32_t(to.tokens.size()));
  const Verdict& v = *o.verdict;
  to.emitted.insert(to.emitted.end(), v.tokens, v.tokens + v.length + 1);
  to.emitted_offsets.push_back(std::int32_t(to.emitted.size()));
  to.accepted.push_back(v.length);
  if (!o.ranks) return;
  to.width = std::int32_t(o.ranks.dim(1));
  for (int n = 0; n < o.tree->nodes; ++n)
    to.ranks.insert(to.ranks.end(), o.ranks.row<Token>(n), o.ranks.row<Token>(n) + to.width);
}

class PythonDrafter : public Drafter {
 public:
  // Under the interpreter's lock.
  PythonDrafter(Host& host, nb::object self, const std::string& who, const Needs& needs)
      : books_(host.backend(), host.target().vocab, needs.hidden, who),
        draft_(method_of(self, "draft")),
        observe_(method_of(self, "observe")),
        observe_step_(method_of(self, "observe_step")),
        forget_(method_of(self, "forget")),
        notice_(method_of(self, "notice")) {
    if (!draft_) throw Error(who + " has no method draft(batch); write one");
  }
  ~PythonDrafter() override {
    const nb::gil_scoped_acquire gil;
    for (nb::object* o : {&draft_, &observe_, &observe_step_, &forget_, &notice_}) o->reset();
  }
  PythonDrafter(const PythonDrafter&) = delete;

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    for (const DraftRequest& r : requests)
      if (const auto fault = faults_.find(r.sequence->id); fault != faults_.end()) throw Error(fault->second);
    const nb::gil_scoped_acquire gil;
    const auto batch = std::make_shared<DraftBatch>(books_, requests);
    // Python may keep the batch, and what it reads goes with this call, whichever way it ends.
    struct End {
      DraftBatch& batch;
      ~End() { batch.close(); }
    } const end{*batch};
    calling(books_.who, "draft", [&] {
      const nb::object guessed = draft_(batch);
      if (!guessed.is_none()) guess(guessed, *batch);
    });
    return batch->take();
  }

  void observe(std::span<const Outcome> outcomes) override {
    if (observe_)
      for (const Outcome& o : outcomes) append(o, heard_);
  }
  // The outcomes of a step are one call.
  void observe_step(const StepReport& report) override {
    if (!observe_step_ && heard_.ids.empty()) return;
    const nb::gil_scoped_acquire gil;
    const auto heard = std::make_shared<OutcomeBatch>(std::move(heard_));
    heard_ = {};
    try {
      if (!heard->ids.empty()) calling(books_.who, "observe", [&] { observe_(heard); });
    } catch (const Error& e) {  // those sequences fail, in draft()
      for (const SequenceId id : heard->ids) faults_[id] = e.what();
    }
    if (observe_step_) calling(books_.who, "observe_step", [&] { observe_step_(step_of(report)); });
  }
  void forget(const Sequence& sequence) override {
    books_.histories.forget(sequence.id);
    faults_.erase(sequence.id);
    if (!forget_) return;
    const nb::gil_scoped_acquire gil;
    calling(books_.who, "forget", [&] { forget_(sequence.id, sequence.running()); });
  }
  std::string notice() const override {
    if (!notice_) return {};
    const nb::gil_scoped_acquire gil;
    try {
      return calling(books_.who, "notice", [&]() -> std::string {
        const nb::object sentence = notice_();
        if (sentence.is_none()) return {};
        if (!nb::isinstance<nb::str>(sentence))
          throw Error(books_.who + " returned in notice what is no sentence but " + kind_of(sentence) +
                      "; return a string, or None where there is nothing to say");
        return said(sentence);
      });
    } catch (const Error& e) {  // what cannot be said fails no request
      return e.what();
    }
  }

 private:
  void guess(const nb::object& guessed, DraftBatch& batch) const {
    const Integers tokens = integers_of(guessed, "the tokens that " + books_.who + " returned", kFillRows);
    const bool one = tokens.rank() == 1;
    if (tokens.rank() < 1 || tokens.rank() > 2 || tokens.shape[0] != std::size_t(batch.size()))
      throw Error(books_.who + " returned tokens of the shape " + shape_text(tokens.shape) +
                  "; return an array [requests, length], here [" + std::to_string(batch.size()) +
                  ", any], or nothing where the batch's own calls guessed or drew");
    batch.guess(tokens.values, one ? 1 : int(tokens.shape[1]));
  }

  DraftBooks books_;
  nb::object draft_, observe_, observe_step_, forget_, notice_;  // bound methods; invalid: there is none
  OutcomeBatch heard_;
  std::unordered_map<SequenceId, std::string> faults_;
};

Needs needs_of(const json& stated, const std::string& who) {
  Needs needs{.learns = stated.value("learns", false), .ranks = stated.value("ranks", 0)};
  const std::vector<Drawn> known{Drawn::certain, Drawn::chain, Drawn::independent, Drawn::without_replacement,
                                 Drawn::marginals};
  for (const json& name : stated.value("proposes", json::array({"certain"}))) {
    const auto drawn =
        std::ranges::find(known, name.get<std::string>(), [](Drawn d) { return std::string(name_of(d)); });
    if (drawn == known.end())
      throw Error(who + " proposes nodes drawn '" + name.get<std::string>() +
                  "', which is none of certain, chain, independent, without_replacement and marginals");
    needs.proposes.push_back(*drawn);
  }
  needs.hidden = stated.value("hidden", std::vector<Tap>());
  needs.waits =
      !needs.hidden.empty() || std::ranges::any_of(needs.proposes, [](Drawn d) { return d != Drawn::certain; });
  return needs;
}

}  // namespace

void register_drafter(const Registration& r) {
  const std::string who = "the drafter '" + r.name + "'";
  const auto traits = stated_by(r, who);
  Entry<Drafter> entry{
      .summary = r.summary,
      .source = r.source,
      .options = options_of(r),
      .make = [make = kept(r.make), traits, who](const json& options, Host& host) -> std::unique_ptr<Drafter> {
        const Needs needs = needs_of(traits(options), who);
        const nb::gil_scoped_acquire gil;
        nb::object self = made(*make, options, host, who);
        return std::make_unique<PythonDrafter>(host, std::move(self), who, needs);
      },
      .traits = [traits, who](const json& options, const ModelInfo&) { return needs_of(traits(options), who); },
      .examples = json::parse(r.examples).get<std::vector<json>>(),
      .plugin = file_of(r, "drafter")};
  put(&Registries::drafters, r, std::move(entry));
}

void register_bench_drafter(const std::string& name) {
  Registration r;
  r.name = name;
  put(&Registries::drafters, r, bench_repeat());
}

}  // namespace foretoken::python
