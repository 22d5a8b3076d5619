#include "drafters/chosen_pages.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "drafters/observed_mass.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

// The pages of one sequence. Host work of a choice: a sort of its pages; of a round between choices: a copy of their
// numbers.
struct ChosenPages {
  std::vector<double> mass;  // by page, of the spans so far
  int read = -1;             // the end of the last one; -1: none
  int at = -1;               // the number of tokens before the choice; -1: none
  std::vector<int> pages;
  int full = 0;  // pages before this one are chosen from, those behind are all read
};
using AllChosen = std::unordered_map<SequenceId, ChosenPages>;

PageChoice choice_of(const std::shared_ptr<const AllChosen>& all) {
  return [all](const Sequence& sequence, int confirmed, int page_rows) {
    const auto found = all->find(sequence.id);
    const int full = confirmed / page_rows;
    std::vector<int> pages;
    if (found != all->end())  // a cache that is filled anew may still be shorter
      std::ranges::copy_if(found->second.pages, std::back_inserter(pages), [&](int page) { return page < full; });
    for (int page = found == all->end() ? 0 : found->second.full; page < full; ++page) pages.push_back(page);
    return pages;
  };
}

// Chooses the pages of sequences before they are drafted for.
class ChoosesPages {
 public:
  ChoosesPages(Host& host, const PageBudget& budget) : budget_(budget), observed_(host) {}

  PageChoice choice() const { return choice_of(all_); }
  // As OwnModel::prepare: a choice depends on verified tokens alone. Without pages to observe with there is no draft in
  // this round.
  void prepare(std::span<DraftRequest> requests) {
    std::vector<ObservedMass::Span> spans;
    std::vector<std::pair<DraftRequest*, std::size_t>> choosing;  // and the number of its spans
    for (DraftRequest& r : requests) {
      if (!drafts(r)) continue;
      const auto due = due_spans(*r.sequence, (*all_)[r.sequence->id]);
      spans.insert(spans.end(), due.begin(), due.end());
      choosing.emplace_back(&r, due.size());
    }
    const std::vector<std::vector<float>> masses = observed_.observe(spans);
    std::size_t i = 0;
    for (const auto& [request, count] : choosing) {
      ChosenPages& chosen = all_->at(request->sequence->id);
      const auto first = masses.begin() + std::ptrdiff_t(i), last = first + std::ptrdiff_t(count);
      const auto lacking = std::find_if(first, last, [](const auto& mass) { return mass.empty(); });
      for (auto mass = first; mass != lacking; ++mass, ++i) add(*mass, spans[i].end, chosen);
      i += std::size_t(last - lacking);
      if (lacking == last)
        choose(*request->sequence, chosen);
      else
        request->rows = 0;
    }
  }
  void forget(const Sequence& sequence) {
    all_->erase(sequence.id);
    observed_.forget(sequence);
  }

 private:
  // As RoundModel drafts from the target's cache.
  bool drafts(const DraftRequest& r) {
    return r.rows > 0 && r.budget.drafts() && r.sequence->generated() > 0 &&
           observed_.confirmed(*r.sequence) == r.sequence->length() - 1;
  }

  void add(const std::vector<float>& mass, int end, ChosenPages& chosen) const {
    if (!budget_.accumulates) chosen.mass.clear();
    chosen.mass.resize(std::max(chosen.mass.size(), mass.size()));
    for (std::size_t page = 0; page < mass.size(); ++page) chosen.mass[page] += double(mass[page]);
    chosen.read = end;
  }

  // The number of tokens before the last choice that is due.
  int anchor(const Sequence& sequence) const {
    return sequence.prompt_length + (sequence.generated() - 1) / budget_.every * budget_.every;
  }
  int whole_pages(int rows) const { return rows / observed_.page_rows() * observed_.page_rows(); }

  // The spans of its tokens whose mass the last choice lacks, in their order.
  std::vector<ObservedMass::Span> due_spans(const Sequence& sequence, const ChosenPages& chosen) const {
    const int last = anchor(sequence);
    if (last / observed_.page_rows() <= KvCache::pages_of(budget_.budget, observed_.page_rows())) return {};
    const auto since = [&](int at) { return std::max(0, at - budget_.observed); };
    if (!budget_.accumulates) {
      if (chosen.read == last) return {};
      return {{&sequence, since(last), last}};
    }
    std::vector<ObservedMass::Span> due;
    int read = chosen.read < 0 ? whole_pages(since(sequence.prompt_length)) : chosen.read;
    const int past = std::max(0, read - sequence.prompt_length) / budget_.every;  // choices, whose spans were read
    for (int at = sequence.prompt_length + past * budget_.every; at <= last; at += budget_.every)
      if (const int end = whole_pages(at); end > read) due.push_back({&sequence, std::exchange(read, end), end});
    return due;
  }

  void choose(const Sequence& sequence, ChosenPages& chosen) const {
    const int rows = observed_.page_rows(), at = anchor(sequence), most = KvCache::pages_of(budget_.budget, rows);
    if (std::exchange(chosen.at, at) == at) return;
    chosen.full = at / rows;
    chosen.pages.resize(std::size_t(chosen.full));
    std::iota(chosen.pages.begin(), chosen.pages.end(), 0);
    if (chosen.full <= most) return;
    const int first = std::min(chosen.full, KvCache::pages_of(budget_.sinks, rows)),
              last = std::clamp((at - budget_.window) / rows, first, chosen.full),
              heavy = std::clamp(most - first - (chosen.full - last), 0, last - first);
    const auto begin = chosen.pages.begin() + first, end = chosen.pages.begin() + last;
    chosen.mass.resize(std::max(chosen.mass.size(), std::size_t(chosen.full)));
    std::stable_sort(begin, end,
                     [&](int a, int b) { return chosen.mass[std::size_t(a)] > chosen.mass[std::size_t(b)]; });
    chosen.pages.erase(begin + heavy, end);
    std::ranges::sort(chosen.pages);
  }

  PageBudget budget_;
  mutable ObservedMass observed_;
  std::shared_ptr<AllChosen> all_ = std::make_shared<AllChosen>();
};

class DraftsOnChosenPages : public Drafter {
 public:
  DraftsOnChosenPages(std::unique_ptr<ChoosesPages> pages, std::unique_ptr<Drafter> inner)
      : pages_(std::move(pages)), inner_(std::move(inner)) {}

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftRequest> served(requests.begin(), requests.end());
    pages_->prepare(served);
    return inner_->draft(served);
  }
  void observe(std::span<const Outcome> outcomes) override { inner_->observe(outcomes); }
  void observe_step(const StepReport& report) override { inner_->observe_step(report); }
  std::string notice() const override { return inner_->notice(); }
  void forget(const Sequence& sequence) override { pages_->forget(sequence), inner_->forget(sequence); }

 private:
  std::unique_ptr<ChoosesPages> pages_;
  std::unique_ptr<Drafter> inner_;
};

}  // namespace

std::vector<Option> with_page_options(std::vector<Option> more) {
  constexpr int kMost = 1 << 30;
  std::vector<Option> all{
      {"budget", "integer", 1024, "positions that it reads, in whole pages, and what is newer than the last choice",
       false, 1, kMost},
      {"window", "integer", 128, "of them the last ones before the choice, always read", false, 0, kMost},
      {"every", "integer", 64,
       "generated tokens after which pages are chosen again, one set for all layers and heads; the first choice is "
       "behind the prompt",
       false, 1, kMost}};
  all.insert(all.end(), more.begin(), more.end());
  return with_growth_options(all);
}

PageBudget checked(const PageBudget& b, const std::string& drafter) {
  if (std::int64_t(b.sinks) + b.window > b.budget)
    throw Error("the drafter '" + drafter + "' has a budget of " + std::to_string(b.budget) +
                " positions, but always reads " + std::to_string(b.sinks) + " at the beginning and " +
                std::to_string(b.window) + " at the end; give it a larger 'budget' or a smaller 'window'");
  return b;
}

Needs chosen_pages_needs(const nlohmann::json& options, const std::string& drafter, const ModelInfo& target) {
  Needs needs = part_needs(options, drafter, target);
  needs.waits = true, needs.below_drafts = false;  // its observing cache follows what the target has read
  return needs;
}

OwnModel chosen_pages_model(const PageBudget& budget, Host& host) {
  const auto pages = std::make_shared<ChoosesPages>(host, budget);
  OwnModel own = part_model({}, host, pages->choice());
  own.prepare = [pages](std::span<DraftRequest> requests) { pages->prepare(requests); };
  own.forget_prepared = [pages](const Sequence& sequence) { pages->forget(sequence); };
  return own;
}

std::unique_ptr<Drafter> chosen_pages_drafter(const nlohmann::json& options, const std::string& drafter,
                                              const PageBudget& budget, Host& host) {
  auto pages = std::make_unique<ChoosesPages>(host, budget);
  auto inner = part_drafter(options, drafter, {}, host, pages->choice());
  return std::make_unique<DraftsOnChosenPages>(std::move(pages), std::move(inner));
}

}  // namespace foretoken
