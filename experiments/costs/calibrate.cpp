#include "experiments/costs/calibrate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>

#include "experiments/report/statistics.h"
#include "experiments/session/interrupt.h"
#include "experiments/sweep/jobs.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int kBlock = 4;                // steps of one draft before the next one's turn; the first of them catches up
constexpr int kLeastSteps = 3;           // of a point: fewer equal ones are left out
constexpr int kMostTokens = 128;         // of a request
constexpr int kShort = 64, kLong = 512;  // contexts
constexpr int kLongestDraft = 8;

// What all sequences are to draft in the next step.
class Dictated : public LengthPolicy {
 public:
  explicit Dictated(std::shared_ptr<const Budget> budget) : budget_(std::move(budget)) {}
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    return std::vector<Budget>(past.size(), *budget_);
  }

 private:
  std::shared_ptr<const Budget> budget_;
};

struct TimedStep {
  double context = 0, seconds = 0, draft_seconds = 0;
};
// A step that reads prompts, or in which a drafter reads what it missed of them.
struct ReadingStep {
  StepShape shape;
  double prompt_rows = 0, before = 0;  // the positions before all of these rows
  double seconds = 0, draft_seconds = 0;
};

double draft_seconds_of(const StepReport& r) { return r.phases.draft_forward + r.phases.draft_other; }

// One engine, of a batch and a context.
class MeasuredEngine {
 public:
  MeasuredEngine(const CalibrationPlan& plan, int batch, int context, Workbench& bench,
                 const std::filesystem::path& beside)
      : plan_(plan), batch_(batch), registries_(bench.registries()) {
    json run = plan.run;
    Budget most;
    for (const Budget& b : plan.budgets) most = {std::max(most.nodes, b.nodes), std::max(most.depth, b.depth)};
    registries_.policies.add(
        "calibrating", {.summary = "",
                        .source = "",
                        .options = {},
                        .make = [budget = budget_](const json&, Host&) { return std::make_unique<Dictated>(budget); },
                        .traits = [most](const json&, const ModelInfo&) { return PolicyTraits(most); }});
    run["policy"] = {{"name", "calibrating"}};
    run["engine"]["batch"] = batch;
    run["engine"]["reuse_prefixes"] = false;
    json& w = run["workload"];
    w["limit"] = batch, w["skip"] = 0, w["turns"] = 1, w["prompt_tokens"] = context, w["stop"] = json::array();
    w["repeats"] = int(kRequestsASlot);
    w["ignore_eos"] = true, w["lengths"] = "equal";
    w["max_new_tokens"] = std::min(kMostTokens, bench.target_info(run, beside).positions - context);
    run["sampling"]["samples"] = 1;
    jobs_ = jobs_of(run, bench, beside);
    engine_ = bench.engine(run, Side::speculative, beside, registries_);
  }

  // For so many seconds, or longer until every draft had its turn, but not beyond the end.
  void measure(double seconds, Clock::time_point end, const std::function<void(double)>& progress) {
    const Clock::time_point begin = Clock::now();
    const auto over = [&] {
      const Clock::time_point now = Clock::now();
      const double share = Seconds(now - begin).count() / seconds;
      progress(std::min(1.0, share));
      return now >= end || (share > 1 && turns_ > 1);
    };
    while (!over()) wave(over);
  }

  // Of this engine; drafts that come with several numbers of rows, as lookups do, have a point for each.
  std::vector<CostedStep> points() const {
    std::vector<CostedStep> found;
    for (const auto& [key, steps] : timed_) {
      if (int(steps.size()) < kLeastSteps) continue;
      const auto& [budget, rows] = key;
      const int depth = plan_.budgets[budget].depth;
      CostedStep point{
          .shape = {.batch = batch_, .depth = depth, .levels = double(batch_) * depth, .rows = double(rows)}};
      std::vector<double> seconds, draft;
      for (const TimedStep& s : steps) {
        point.shape.context += s.context / double(steps.size());
        seconds.push_back(s.seconds);
        draft.push_back(s.draft_seconds);
      }
      point.seconds = median(std::move(seconds));
      point.draft_seconds = depth > 0 ? std::min(median(std::move(draft)), 0.99 * point.seconds) : 0;
      point.steps = int(steps.size());
      found.push_back(point);
    }
    return found;
  }
  const std::vector<ReadingStep>& reading() const { return reading_; }

 private:
  // A batch of requests, from reading their prompts until one is about to end.
  template <class Over> void wave(const Over& over) {
    std::map<SequenceId, int> lengths, left;  // tokens so far, and to come at most
    for (int i = 0; i < batch_; ++i) {
      Request request = jobs_[next_++ % jobs_.size()].request;
      const int length = int(request.prompt.size()), most = request.limits.max_new_tokens;
      const SequenceId id = engine_->submit(std::move(request));
      lengths[id] = length, left[id] = most;
    }
    int in_block = 0;
    bool decoding = false, after_prompt = false, ending = false;
    while (!engine_->idle()) {
      check_interrupt();
      // While prompts are read the shortest draft, since drafters read them, too.
      *budget_ = plan_.budgets[decoding ? turn_ : std::min<std::size_t>(1, plan_.budgets.size() - 1)];
      double context = 0;
      for (const auto& [id, length] : lengths) context += length;
      const StepReport r = without_failures(engine_->step());
      for (const SequenceReport& s : r.sequences) {
        lengths[s.id] += int(s.emitted.size());
        left[s.id] -= int(s.emitted.size());
      }
      if (ending) continue;
      double prompt_rows = 0, before = 0;
      bool whole = int(r.sequences.size()) == batch_ && r.preempted == 0;
      for (const SequenceReport& s : r.sequences) {
        prompt_rows += s.prompt_rows;
        before += 0.5 * s.prompt_rows * lengths[s.id];
        whole &= s.judged;
      }
      if (prompt_rows > 0 || after_prompt) note_reading(r, prompt_rows, before, context, budget_->depth);
      after_prompt = prompt_rows > 0;
      const bool began = !decoding && whole && prompt_rows == 0;
      decoding |= began;
      if (decoding && whole && !began && prompt_rows == 0) {  // as it began the draft was not the one whose turn it is
        if (in_block > 0 && r.recorded == 0 && turns_ > 0)
          timed_[{turn_, r.rows}].push_back({context, r.phases.total, draft_seconds_of(r)});
        if (++in_block == kBlock) {
          in_block = 0;
          next_turn();
        }
      }
      // The end of an output leaves no room for the longest draft.
      const bool room = std::ranges::all_of(left, [&](const auto& l) { return l.second > plan_.budgets.back().depth; });
      if ((!decoding || whole) && room && !(in_block == 0 && over())) continue;
      for (const auto& [id, length] : lengths) engine_->cancel(id);
      ending = true;
    }
    if (in_block > 0) next_turn();  // outputs that end within a block
    if (!decoding && !over())
      throw Error("no step had all " + std::to_string(batch_) +
                  " sequences decoding; give the engine more memory with '/engine/memory_mib', or "
                  "calibrate smaller batches");
  }
  void next_turn() {
    turn_ = (turn_ + 1) % plan_.budgets.size();
    if (turn_ == 0) ++turns_;  // of the first turn all is warm-up
  }
  void note_reading(const StepReport& r, double prompt_rows, double before, double context, int depth) {
    if (turns_ == 0 || r.recorded > 0) return;
    const auto judged = std::ranges::count_if(r.sequences, &SequenceReport::judged);
    ReadingStep s{.shape = {.batch = std::max(1, int(judged))}};
    s.shape.rows = std::max(double(s.shape.batch), r.rows - prompt_rows);
    s.shape.context = context * double(s.shape.batch) / double(batch_);
    s.shape.depth = s.shape.rows > s.shape.batch ? depth : 0;
    s.prompt_rows = prompt_rows;
    s.before = before;
    s.seconds = r.phases.total;
    s.draft_seconds = draft_seconds_of(r);
    reading_.push_back(s);
  }

  const CalibrationPlan& plan_;
  int batch_;
  Registries registries_;
  std::shared_ptr<Budget> budget_ = std::make_shared<Budget>();
  std::vector<Job> jobs_;
  std::unique_ptr<Engine> engine_;
  std::size_t next_ = 0, turn_ = 0;                                      // the next request; the draft whose turn it is
  int turns_ = 0;                                                        // of all drafts
  std::map<std::pair<std::size_t, int>, std::vector<TimedStep>> timed_;  // by draft and rows
  std::vector<ReadingStep> reading_;
};

// What is left of reading steps when what decoding costs is taken off them.
PromptCosts prompt_costs_of(const std::vector<ReadingStep>& reading, const CostModel& costs) {
  double rows = 0, draft = 0;
  std::vector<std::vector<double>> terms;
  std::vector<double> target;
  for (const ReadingStep& s : reading) {
    rows += s.prompt_rows;
    draft += s.draft_seconds - costs.draft(s.shape);
    if (s.prompt_rows == 0) continue;
    terms.push_back({s.prompt_rows / s.seconds, s.before / s.seconds});  // relative deviations, as elsewhere
    target.push_back((s.seconds - s.draft_seconds - costs.other(s.shape)) / s.seconds);
  }
  if (rows == 0) return {};
  const std::vector<double> found = nonnegative_least_squares(terms, target);
  return {.seconds = found[0], .position_seconds = found[1], .draft_seconds = std::max(0.0, draft / rows)};
}

std::vector<int> sorted(const std::set<int>& numbers) { return {numbers.begin(), numbers.end()}; }

std::set<int> powers(int factor, int most) {
  std::set<int> found;
  for (int n = 1; n <= most; n *= factor) found.insert(n);
  return found;
}

// What runs that are calibrated together have in common.
json calibrated_together(const json& run) {
  json common;
  for (const char* part : {"target", "drafter", "verifier", "sampling", "engine"}) common[part] = run.at(part);
  common["engine"].erase("batch");
  common["prompts"] = run.at("workload").at("prompts");
  return common;
}

// The largest of each run; of trees, as their levels are wide.
std::vector<Budget> budgets_of(const std::vector<Run>& runs, const std::vector<int>& lengths, Workbench& bench,
                               const std::filesystem::path& beside) {
  int longest = 0, width = 1;
  for (const Run& run : runs) {
    const json policy = bench.registries().policies.with_paths(
        run.document.at("policy"), [&](const std::string& path) { return locate(path, beside).string(); });
    const Budget most = bench.registries().policies.traits(policy, ModelInfo()).most.or_root();
    longest = std::max(longest, most.depth);
    if (most.depth > 0) width = std::max(width, (most.nodes - 2) / most.depth + 1);
  }
  std::set<int> depths = powers(2, std::min(longest, kLongestDraft));
  if (longest > 0) depths.insert(longest);
  if (!lengths.empty()) depths = {lengths.begin(), lengths.end()};
  depths.insert(0);
  std::vector<Budget> budgets;
  for (const int depth : depths) budgets.push_back(level_budget(depth, width));
  return budgets;
}

}  // namespace

CalibrationPlan calibration_plan(const std::vector<Run>& runs, const CalibrationChoice& choice, Workbench& bench,
                                 const std::filesystem::path& beside) {
  CalibrationPlan plan;
  plan.run = runs.front().document;
  if (plan.run.contains("parallel"))
    throw Error("costs are measured on one device; leave '/parallel' out of the document");
  std::set<int> batches;
  int largest = 1;
  for (const Run& run : runs) {
    const json changes = json::diff(calibrated_together(plan.run), calibrated_together(run.document));
    if (!changes.empty())
      throw Error("the runs of the document differ in " + changes.front().at("path").get<std::string>() +
                  ", and costs are of one target and drafter; take that axis out of it, and choose with --set");
    batches.insert(run.document.at("engine").at("batch").get<int>());
    largest = *batches.rbegin();
  }
  batches.merge(powers(largest > 4 ? 4 : 2, largest));
  plan.batches = sorted(choice.batches.empty() ? batches : std::set(choice.batches.begin(), choice.batches.end()));
  const int positions = bench.target_info(plan.run, beside).positions;
  std::set<int> contexts{kShort, std::min(kLong, positions / 2)};
  if (!choice.contexts.empty()) contexts = {choice.contexts.begin(), choice.contexts.end()};
  plan.contexts = sorted(contexts);
  plan.budgets = budgets_of(runs, choice.lengths, bench, beside);
  if (plan.contexts.back() + kMostTokens / 4 + plan.budgets.back().depth > positions)
    throw Error("a context of " + std::to_string(plan.contexts.back()) + " tokens leaves no room to decode in the " +
                std::to_string(positions) + " positions of the target; give a smaller one to --contexts");
  plan.seconds = choice.seconds;
  return plan;
}

Calibration calibrate(const CalibrationPlan& plan, Workbench& bench, const std::filesystem::path& beside,
                      const std::function<void(int engine, double share)>& progress) {
  std::vector<CostedStep> steps;
  std::vector<ReadingStep> reading;
  const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(plan.seconds));
  const int planned = int(plan.batches.size() * plan.contexts.size());
  int number = 0, measured = 0;
  for (const int batch : plan.batches)
    for (const int context : plan.contexts) {
      if (Clock::now() >= end) break;
      MeasuredEngine engine(plan, batch, context, bench, beside);
      const double left = std::max(0.0, Seconds(end - Clock::now()).count());
      engine.measure(left / (planned - number), end, [&](double share) { progress(number, share); });
      const std::vector<CostedStep> points = engine.points();
      steps.insert(steps.end(), points.begin(), points.end());
      reading.insert(reading.end(), engine.reading().begin(), engine.reading().end());
      ++number;
      measured += !points.empty();
    }
  if (std::ranges::none_of(steps, [](const CostedStep& s) { return s.shape.depth == 0; }))
    throw Error("no step without a draft could be measured in " + std::to_string(int(plan.seconds)) +
                " s; give more --seconds, or smaller --batches and --contexts");
  const CostModel costs(steps, {}, "what was measured");
  return {{std::move(steps), prompt_costs_of(reading, costs), "what was measured"}, measured, planned};
}

}  // namespace foretoken
