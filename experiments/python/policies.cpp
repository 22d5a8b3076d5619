#include <nanobind/stl/shared_ptr.h>

#include "experiments/python/arrays.h"
#include "experiments/python/calls.h"
#include "experiments/python/components.h"
#include "experiments/python/making.h"
#include "kernels/error.h"

namespace foretoken::python {

using nlohmann::json;

namespace {

std::shared_ptr<PolicyBatch> batch_of(std::span<const PastOnly> past) {
  auto batch = std::make_shared<PolicyBatch>();
  for (const PastOnly& p : past) {
    batch->ids.push_back(p.id);
    batch->lengths.push_back(p.length), batch->rounds.push_back(p.rounds);
    batch->drafted.push_back(p.drafted), batch->accepted.push_back(p.accepted);
    batch->acceptance.push_back(p.acceptance);
    batch->room_nodes.push_back(p.room.nodes), batch->room_depth.push_back(p.room.depth);
  }
  return batch;
}

class PythonPolicy : public LengthPolicy {
 public:
  // Under the interpreter's lock.
  PythonPolicy(const nb::object& self, std::string who)
      : who_(std::move(who)),
        budgets_(method_of(self, "budgets")),
        observe_(method_of(self, "observe")),
        forget_(method_of(self, "forget")) {
    if (!budgets_) throw Error(who_ + " has no method budgets(batch); write one");
  }
  ~PythonPolicy() override {
    const nb::gil_scoped_acquire gil;
    for (nb::object* o : {&budgets_, &observe_, &forget_}) o->reset();
  }
  PythonPolicy(const PythonPolicy&) = delete;

  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    const nb::gil_scoped_acquire gil;
    return calling(who_, "budgets", [&] {
      const Integers given = integers_of(budgets_(batch_of(past)), "the budgets that " + who_ + " returned");
      const bool both = given.rank() == 2 && given.shape[1] == 2;
      if ((given.rank() != 1 && !both) || given.shape[0] != past.size())
        throw Error(who_ + " returned budgets of the shape " + shape_text(given.shape) +
                    "; return the length of a chain for each sequence, here [" + std::to_string(past.size()) +
                    "], or nodes (the root among them) and levels, [" + std::to_string(past.size()) + ", 2]");
      std::vector<Budget> budgets;
      for (std::size_t i = 0; i < past.size(); ++i)
        budgets.push_back(both ? Budget{given.values[2 * i], given.values[2 * i + 1]}
                               : Budget{std::min(given.values[i], kMaxNodes) + 1, given.values[i]});
      return budgets;
    });
  }
  void observe(const StepReport& report) override {
    if (!observe_) return;
    const nb::gil_scoped_acquire gil;
    calling(who_, "observe", [&] { observe_(step_of(report)); });
  }
  void forget(const Sequence& sequence) override {
    if (!forget_) return;
    const nb::gil_scoped_acquire gil;
    calling(who_, "forget", [&] { forget_(sequence.id); });
  }

 private:
  std::string who_;
  nb::object budgets_, observe_, forget_;  // bound methods; invalid: there is none
};

PolicyTraits traits_of(const json& stated) {
  const int depth = stated.at("depth").get<int>();
  return {Budget{stated.value("nodes", depth + 1), depth}, stated.value("learns", false)};
}

}  // namespace

void register_policy(const Registration& r) {
  const std::string who = "the policy '" + r.name + "'";
  const auto traits = stated_by(r, who);
  Entry<LengthPolicy> entry{
      .summary = r.summary,
      .source = r.source,
      .options = options_of(r),
      .make = [make = kept(r.make), who](const json& options, Host& host) -> std::unique_ptr<LengthPolicy> {
        const nb::gil_scoped_acquire gil;
        return std::make_unique<PythonPolicy>(made(*make, options, host, who), who);
      },
      .traits = [traits](const json& options, const ModelInfo&) { return traits_of(traits(options)); },
      .examples = json::parse(r.examples).get<std::vector<json>>(),
      .plugin = file_of(r, "policy")};
  put(&Registries::policies, r, std::move(entry));
}

}  // namespace foretoken::python
