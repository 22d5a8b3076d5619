#include "drafters/policies/cost_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;

constexpr double kBeyond = 1.1;     // times the largest that was measured
constexpr double kApart = 2;        // least ratio of neighbouring knots
constexpr double kPositions = 1e3;  // in a unit of the fit, so that its terms are of one size
constexpr int kMostSteps = 100'000, kMostBatch = 1 << 20;

// 0, then powers of two or more among the numbers of rows, and the greatest.
std::vector<double> knots_of(std::vector<double> rows) {
  std::ranges::sort(rows);
  std::vector<double> knots{0};
  for (const double r : rows)
    if (r > 0 && (knots.size() == 1 || r >= kApart * knots.back())) knots.push_back(r);
  if (!rows.empty() && knots.size() > 2 && rows.back() > knots.back()) knots.back() = rows.back();
  return knots;
}

double nodes_of_level(const StepShape& s) { return std::max(0.0, s.rows - s.batch) / s.depth; }

double nodes_of_each(const StepShape& s) { return std::max(0.0, s.rows - s.batch) / s.levels; }

CostedStep costed_step_of(const json& value, const std::string& where) {
  const Fields f(value, where);
  const auto number_or = [&](const char* key, double otherwise) {
    if (!f.has(key)) return otherwise;
    const json& given = *f.find(key);
    if (!given.is_number() || !(given.get<double>() >= 0) || !std::isfinite(given.get<double>()))
      f.refuse(key, "must be a number that is not negative");
    return given.get<double>();
  };
  CostedStep s{.shape = {.batch = f.integer("batch", 1, kMostBatch), .depth = f.integer_or("depth", 0, kMaxPath, 0)}};
  s.shape.rows = f.positive("rows");
  s.shape.context = number_or("context", 0);
  s.shape.levels = double(s.shape.batch) * s.shape.depth;
  s.seconds = f.positive("seconds");
  s.draft_seconds = number_or("draft_seconds", 0);
  s.steps = f.integer_or("steps", 1, std::numeric_limits<int>::max(), 1);
  if (s.shape.depth > 0 && !f.has("draft_seconds"))
    throw Error(where + ": a step with a \"depth\" above 0 needs its \"draft_seconds\"");
  if (s.shape.depth == 0 && s.draft_seconds > 0)
    throw Error(where +
                ": a step with the \"depth\" 0 drafts nothing; take out its \"draft_seconds\", or give its depth");
  if (s.shape.rows < s.shape.batch) f.refuse("rows", "every sequence of the \"batch\" has a row");
  if (s.shape.depth == 0 && s.shape.rows > s.shape.batch)
    f.refuse("rows", "a step with the \"depth\" 0 has as many as the \"batch\"; give the depth of its draft");
  if (!(s.draft_seconds < s.seconds)) f.refuse("seconds", "it must be more than \"draft_seconds\", a part of it");
  return s;
}

}  // namespace

std::vector<double> nonnegative_least_squares(const std::vector<std::vector<double>>& rows,
                                              const std::vector<double>& b) {
  constexpr int kSweeps = 20'000;
  constexpr double kStill = 1e-12;
  const std::size_t n = rows.empty() ? 0 : rows.front().size();
  std::vector<std::vector<double>> squares(n, std::vector<double>(n));
  std::vector<double> products(n), c(n);
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (std::size_t i = 0; i < n; ++i) {
      products[i] += rows[r][i] * b[r];
      for (std::size_t j = 0; j < n; ++j) squares[i][j] += rows[r][i] * rows[r][j];
    }
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    double moved = 0;  // of what a term gives
    for (std::size_t i = 0; i < n; ++i) {
      if (!(squares[i][i] > 0)) continue;
      double rest = products[i];
      for (std::size_t j = 0; j < n; ++j) rest -= squares[i][j] * c[j];
      const double next = std::max(0.0, c[i] + rest / squares[i][i]);
      moved = std::max(moved, std::abs(next - c[i]) * std::sqrt(squares[i][i]));
      c[i] = next;
    }
    if (moved < kStill) break;
  }
  return c;
}

std::vector<double> CostModel::Forward::terms(double rows, double batch, double context) const {
  std::vector<double> found{1, batch, context / kPositions, context / kPositions * rows / std::max(1.0, batch)};
  for (std::size_t k = 0; k + 1 < knots.size() || k == 0; ++k) {
    const double from = knots[k], to = k + 2 < knots.size() ? knots[k + 1] : std::numeric_limits<double>::infinity();
    found.push_back(std::clamp(rows - from, 0.0, to - from));
  }
  if (!single) return found;
  const bool alone = rows <= batch;
  for (const bool kind : {true, false})  // of either, since no term is negative
    found.insert(found.end(), {double(alone == kind), alone == kind ? batch : 0});
  return found;
}

double CostModel::Forward::seconds(double rows, double batch, double context) const {
  const std::vector<double> x = terms(rows, batch, context);
  double sum = 0;
  for (std::size_t i = 0; i < coefficients.size(); ++i) sum += coefficients[i] * x[i];
  return sum;
}

CostModel::CostModel(std::vector<CostedStep> steps, PromptCosts prompt, const std::string& where)
    : steps_(std::move(steps)), prompt_(prompt) {
  for (const CostedStep& s : steps_) {
    rows_.add(s.shape.rows);
    batch_.add(s.shape.batch);
    context_.add(s.shape.context);
    if (s.shape.depth == 0) continue;
    depth_.add(s.shape.depth);
    nodes_.add(nodes_of_each(s.shape));
  }
  if (std::ranges::none_of(steps_, [](const CostedStep& s) { return s.shape.depth == 0; }))
    throw Error(where + ": among its \"steps\" is none of plain decoding, whose \"depth\" is 0; measure one, with as " +
                "many rows as sequences");
  fit_other();
  if (drafts()) fit_draft();
}

void CostModel::fit_other() {
  std::vector<double> rows, seconds;
  for (const CostedStep& s : steps_) rows.push_back(s.shape.rows);
  other_.knots = knots_of(rows);
  other_.single = true;
  std::vector<std::vector<double>> terms;
  for (const CostedStep& s : steps_) {
    std::vector<double> x = other_.terms(s.shape.rows, s.shape.batch, s.shape.context);
    for (double& term : x) term /= s.seconds;
    terms.push_back(std::move(x));
    seconds.push_back(1 - s.draft_seconds / s.seconds);
  }
  other_.coefficients = nonnegative_least_squares(terms, seconds);
}

void CostModel::fit_draft() {
  std::vector<double> nodes, seconds;
  for (const CostedStep& s : steps_)
    if (s.shape.depth > 0) nodes.push_back(nodes_of_level(s.shape));
  level_.knots = knots_of(nodes);
  std::vector<std::vector<double>> terms;
  for (const CostedStep& s : steps_) {
    if (s.shape.depth == 0) continue;
    std::vector<double> x = level_.terms(nodes_of_level(s.shape), s.shape.batch, s.shape.context);
    for (double& term : x) term *= s.shape.depth / s.seconds;
    x.push_back(1 / s.seconds);
    terms.push_back(std::move(x));
    seconds.push_back(s.draft_seconds / s.seconds);
  }
  level_.coefficients = nonnegative_least_squares(terms, seconds);
  draft_fixed_ = level_.coefficients.back();
  level_.coefficients.pop_back();
}

double CostModel::other(const StepShape& s) const { return other_.seconds(s.rows, s.batch, s.context); }

double CostModel::draft(const StepShape& s) const {
  if (s.depth == 0 || !drafts()) return 0;
  return draft_fixed_ + s.depth * level_.seconds(nodes_of_level(s), s.batch, s.context);
}

bool CostModel::Extent::above(double value) const { return value > kBeyond * most; }
bool CostModel::Extent::below(double value) const { return kBeyond * value < least; }

bool CostModel::larger(const StepShape& s) const {
  return rows_.above(s.rows) || batch_.above(s.batch) || depth_.above(s.depth) ||
         (context_.most > 0 && context_.above(s.context)) || (s.levels > 0 && nodes_.above(nodes_of_each(s)));
}

bool CostModel::smaller(const StepShape& s) const {
  if (rows_.below(s.rows) || batch_.below(s.batch)) return true;
  if (s.levels > 0 && (depth_.below(s.depth) || nodes_.below(nodes_of_each(s)))) return true;
  if (!context_.below(s.context)) return false;
  StepShape least = s;
  least.context = context_.least;
  return kBeyond * seconds(s) < seconds(least);
}

CostError CostModel::cross_validation() const {
  std::vector<double> errors;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    std::vector<CostedStep> others = steps_;
    others.erase(others.begin() + std::ptrdiff_t(i));
    const auto plain = std::ranges::count_if(others, [](const CostedStep& s) { return s.shape.depth == 0; });
    if (plain == 0 || std::ssize(others) == plain) continue;  // nothing would be known of its kind
    errors.push_back(std::abs(CostModel(std::move(others), prompt_).seconds(steps_[i].shape) / steps_[i].seconds - 1));
  }
  if (steps_.size() < 3 || errors.empty())
    return {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN()};
  std::ranges::sort(errors);
  return {(errors[(errors.size() - 1) / 2] + errors[errors.size() / 2]) / 2, errors.back()};
}

CostModel CostModel::read(const json& document, const std::string& where) {
  if (!document.is_object() || document.value("kind", json()) != kCostsKind)
    throw Error(where + " has no \"kind\": \"" + kCostsKind + "\"; name a file that `foretoken calibrate` wrote");
  const Fields fields(document, where);
  if (const json schema = document.value("schema", json()); schema != kCostsSchema)
    throw Error(where + " has the schema " + shown(schema) + ", while this version reads " +
                std::to_string(kCostsSchema) + "; calibrate again");
  const json& all = fields.array("steps");
  if (all.size() > std::size_t(kMostSteps)) fields.refuse("steps", "it has more than 100000 entries");
  std::vector<CostedStep> steps;
  for (std::size_t i = 0; i < all.size(); ++i)
    steps.push_back(costed_step_of(all[i], where + ": \"steps\", number " + std::to_string(i + 1)));
  PromptCosts prompt;
  if (fields.has("prompt_token")) {
    const Fields token = fields.object("prompt_token");
    for (const auto& [key, seconds] : {std::pair{"seconds", &prompt.seconds},
                                       {"position_seconds", &prompt.position_seconds},
                                       {"draft_seconds", &prompt.draft_seconds}})
      if (token.has(key)) {
        const json& given = *token.find(key);
        if (!given.is_number() || !(given.get<double>() >= 0)) token.refuse(key, "must not be negative");
        *seconds = given;
      }
  }
  return {std::move(steps), prompt, where};
}

json CostModel::document() const {
  json all = json::array();
  for (const CostedStep& s : steps_)
    all.push_back({{"batch", s.shape.batch},
                   {"rows", s.shape.rows},
                   {"depth", s.shape.depth},
                   {"context", s.shape.context},
                   {"seconds", s.seconds},
                   {"draft_seconds", s.draft_seconds},
                   {"steps", s.steps}});
  return {{"kind", kCostsKind},
          {"schema", kCostsSchema},
          {"steps", all},
          {"prompt_token",
           {{"seconds", prompt_.seconds},
            {"position_seconds", prompt_.position_seconds},
            {"draft_seconds", prompt_.draft_seconds}}}};
}

}  // namespace foretoken
