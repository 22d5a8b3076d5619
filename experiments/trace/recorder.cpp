#include "experiments/trace/recorder.h"

#include <algorithm>
#include <set>
#include <utility>

#include "experiments/conformance/enumerator.h"
#include "experiments/session/run_document.h"
#include "experiments/trace/node_numbers.h"
#include "framework/components/host.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

// Follows the outcomes of a rule's decisions. Of a drawn token only matters which token of the tree it is, if any, so a
// draw has few outcomes whatever the vocabulary.
class Decisions final : public conformance::Enumerator {
 public:
  explicit Decisions(std::set<Token> tokens) : tokens_(tokens.begin(), tokens.end()) {}

  Token draw(int vocab, conformance::Probability law, const Draws& draws, DrawName name) override {
    std::vector<double> mass;
    for (const Token x : tokens_) mass.push_back(law(x));
    double others = 0;
    Token other = -1;
    auto next = tokens_.begin();
    for (Token x = 0; x < vocab; ++x) {
      if (next != tokens_.end() && *next == x) {
        ++next;
      } else if (const double p = law(x); p > 0) {
        others += p, other = x;
      }
    }
    mass.push_back(others);
    const Token taken = Enumerator::draw(int(mass.size()), [&](Token i) { return mass[std::size_t(i)]; }, draws, name);
    return std::size_t(taken) < tokens_.size() ? tokens_[std::size_t(taken)] : other;
  }

 private:
  std::vector<Token> tokens_;  // of the tree, ascending
};

std::vector<int> depths_of(const DraftTree& tree) {
  std::vector<int> depth(std::size_t(tree.nodes), 0);
  for (std::size_t n = 1; n < depth.size(); ++n)
    depth[n] = depth[std::size_t(tree.parents.data<std::int32_t>()[n])] + 1;
  return depth;
}

// The tree with its nodes below `levels` absent.
DraftTree cut(const DraftTree& tree, const std::vector<int>& depth, int levels) {
  DraftTree shorter = tree;
  shorter.known = shorter.tokens = Tensor::host({tree.nodes}, DType::i32);
  for (std::size_t n = 0; n < depth.size(); ++n)
    shorter.known.data<Token>()[n] = depth[n] > levels ? -1 : tree.known.data<Token>()[n];
  return shorter;
}

// One trial in host memory.
class Judged {
 public:
  Judged(HostBackend& host, const Trials& all, std::size_t i, int row)
      : host_(host),
        staging_(host),
        tree_(all.trees()[i]),
        p_(all.p().slice(row, tree_.nodes)),
        raw_(all.raw() ? all.raw().slice(row, tree_.nodes) : Distributions()),
        draws_(all.named()[i]),
        position_(all.positions()[i]) {}

  Reach reach(Verifier& verifier) {
    const std::vector<int> depth = depths_of(tree_);
    Reach reach;
    for (int levels = 1; levels <= *std::ranges::max_element(depth); ++levels)
      reach.push_back(reach_of(verifier, cut(tree_, depth, levels), levels));
    return reach;
  }

 private:
  std::vector<double> reach_of(Verifier& verifier, const DraftTree& tree, int levels) {
    const Token* const tokens = tree.known.data<Token>();
    std::set<Token> drafted(tokens + 1, tokens + tree.nodes);
    drafted.erase(-1);
    Decisions decisions(std::move(drafted));
    std::vector<double> reach(std::size_t(levels), 0);
    const conformance::Asking asking(host_, decisions);
    do {
      const Tensor verdict = host_.allocate({1, std::int64_t(sizeof(Verdict))}, DType::u8);
      const Trials one(host_, {&tree, 1}, p_, {&draws_, 1}, {&position_, 1}, staging_, raw_);
      verifier.verify(host_, one, verdict);
      const int length = verdict.data<Verdict>()->length;
      if (length < 0 || length > levels) throw Error("a verifier accepted more of a tree than its levels");
      for (int i = 0; i < length; ++i) reach[std::size_t(i)] += decisions.weight();
    } while (decisions.next());
    return reach;
  }

  HostBackend& host_;
  Staging staging_;
  DraftTree tree_;
  Distributions p_, raw_;
  Draws draws_;
  std::uint32_t position_;
};

std::vector<Drawn> drawn_in(std::span<const DraftTree> trees) {
  std::vector<Drawn> all;
  for (const DraftTree& tree : trees)
    for (int n = 1; n < tree.nodes; ++n)
      if (!tree.aside(n)) all.push_back(Drawn(*tree.q.drawn.row<std::uint8_t>(n)));
  return all;
}

}  // namespace

std::vector<Reach> PathReach::of(Backend& backend, const Trials& trials, const Judge& judge, const std::string& name) {
  expect_followed(judge.soundness, name, drawn_in(trials.trees()));
  std::vector<Reach> all;
  const Tensor unused = backend.allocate({std::int64_t(trials.count()), std::int64_t(sizeof(Verdict))}, DType::u8);
  copies_.verify(backend, trials, unused, [&](Backend& host, const Trials& local, Tensor) {
    int row = 0;
    for (std::size_t i = 0; i < local.trees().size(); ++i) {
      all.push_back(Judged(dynamic_cast<HostBackend&>(host), local, i, row).reach(*judge.verifier));
      row += local.trees()[i].nodes;
    }
  });
  return all;
}

using nlohmann::json;

namespace {

// The config of a verifier that judges. `own`: that of the run's verifier, whose options are those of its name.
json judge_of(const std::string& name, const json& own) { return own.at("name") == name ? own : json{{"name", name}}; }

}  // namespace

class Recorder::RecordingVerifier final : public Verifier {
 public:
  RecordingVerifier(Recorder& recorder, std::unique_ptr<Verifier> own, std::vector<Judge> judges)
      : recorder_(recorder), own_(std::move(own)), judges_(std::move(judges)) {}
  void verify(Backend& backend, const Trials& trials, Tensor verdicts) override {
    own_->verify(backend, trials, verdicts);
    try {
      recorder_.record(backend, trials, verdicts, judges_);
    } catch (...) {  // no failure of the sequences, which the engine would make of it
      recorder_.broken_ = std::current_exception();
    }
  }

 private:
  Recorder& recorder_;
  std::unique_ptr<Verifier> own_;
  std::vector<Judge> judges_;
};

Registries Recorder::recording(const Registries& registries, const json& config) {
  Registries all = registries;
  Entry<Verifier> entry = registries.verifiers.find(config);
  // Of `registries`, since the host's have the recorder in place of the run's verifier.
  entry.traits = [this, &registries, config](const json& options, const ModelInfo& target) {
    Soundness own = registries.verifiers.traits(options, target);
    if (recording_.dense) own.promise = "exact", own.raw = false, own.induced = {}, own.acceptance = Acceptance::other;
    for (const std::string& name : recording_.verifiers)
      own.raw |= registries.verifiers.traits(judge_of(name, config), target).raw;
    return own;
  };
  entry.make = [this, &registries, config](const json& options, Host& host) {
    const auto& [of, all] = std::tie(host.target(), registries.verifiers);
    std::vector<Judge> judges;
    for (const std::string& name : recording_.verifiers)
      judges.push_back({all.make(judge_of(name, config), host), all.traits(judge_of(name, config), of)});
    auto own = recording_.dense ? one_token(all.traits(options, of).race) : all.make(options, host);
    return std::make_unique<RecordingVerifier>(*this, std::move(own), std::move(judges));
  };
  all.verifiers.replace(config.at("name"), std::move(entry));
  return all;
}

void Recorder::record(Backend& backend, const Trials& trials, const Tensor& verdicts,
                      const std::vector<Judge>& judges) {
  const Mark judged = backend.mark();
  const Tensor decided = Tensor::host(verdicts.shape(), DType::u8);
  const Tensor tokens = Tensor::host(trials.tokens().shape(), DType::i32);
  backend.fetch(verdicts, decided), backend.fetch(trials.tokens(), tokens);
  const std::vector<NodeNumbers> numbers = node_numbers(backend, trials, verdicts);  // waits
  std::size_t row = 0;
  const std::size_t first = rounds_.size();
  for (std::size_t i = 0; i < trials.trees().size(); ++i) {
    TracedRound r = round_of(trials, i);
    for (std::size_t n = 0; n < std::size_t(r.size()); ++n) {
      const NodeNumbers& of = numbers[row + n];
      if (n > 0) {
        TracedNode& node = r.nodes[n - 1];
        node.token = tokens.data<Token>()[row + n], node.p = of.p, node.q = of.q, node.accept = of.accept;
      }
      if (of.overlap >= 0) r.overlap[int(n)] = of.overlap;
    }
    const Verdict& v = *reinterpret_cast<const Verdict*>(decided.row<std::uint8_t>(std::int64_t(i)));
    if (v.length >= 0 && v.length < r.size() && v.length <= kMaxPath) {  // deliver() looks at the rest
      r.path.assign(v.path, v.path + v.length);
      const int last = v.length > 0 ? std::clamp(r.path.back(), 0, r.size() - 1) : 0;
      r.p_next = numbers[row + std::size_t(last)].p_next, r.q_next = numbers[row + std::size_t(last)].q_next;
    }
    row += std::size_t(r.size());
    rounds_.push_back(std::move(r));
  }
  for (std::size_t j = 0; j < judges.size(); ++j) {
    const std::string& name = recording_.verifiers[j];
    const std::vector<Reach> reach = path_reach_.of(backend, trials, judges[j], name);
    for (std::size_t i = 0; i < reach.size(); ++i)
      if (!reach[i].empty()) rounds_[first + i].reach[name] = reach[i];
  }
  const Mark done = backend.mark();
  backend.synchronize();
  seconds_ += backend.seconds(judged, done);
}

// What the host knows of it; its numbers and tokens follow.
TracedRound Recorder::round_of(const Trials& trials, std::size_t i) const {
  const DraftTree& tree = trials.trees()[i];
  const Request& request = requests_.at(trials.named()[i].stream);
  TracedRound r;
  r.request = request.index, r.at = int(trials.positions()[i]) - request.prompt_tokens;
  for (int n = 1; n < tree.nodes; ++n)  // what is aside: an absent guess, as the verifier saw it
    r.nodes.push_back({*tree.parents.row<std::int32_t>(n), -1,
                       tree.aside(n) ? Drawn::certain : Drawn(*tree.q.drawn.row<std::uint8_t>(n))});
  return r;
}

// Of a failed sequence the engine has judged no tree, though the verifier has.
void Recorder::leave_out_failed(const StepReport& report) {
  for (const Sequence& q : report.finished) {
    if (q.finish != Finish::failed) continue;
    const int request = requests_.at(q.stream).index;
    failed_.insert(request);
    const bool judged =
        std::ranges::any_of(report.sequences, [&](const SequenceReport& r) { return r.id == q.id && r.judged; });
    if (!judged) std::erase_if(rounds_, [&](const TracedRound& r) { return r.request == request; });
  }
}

TracedStep Recorder::step(const StepReport& report, bool baseline) {
  if (broken_) std::rethrow_exception(std::exchange(broken_, nullptr));
  if (!baseline) leave_out_failed(report);
  TracedStep s;
  s.baseline = baseline, s.rows = report.rows, s.phases = report.phases;
  s.phases.verify -= seconds_, s.phases.total -= seconds_;
  auto round = rounds_.begin();
  for (const SequenceReport& r : report.sequences) {
    s.prompt_rows += r.prompt_rows, s.judged += r.judged, s.depth = std::max(s.depth, r.depth);
    if (!r.judged || baseline) continue;
    if (round == rounds_.end()) throw Error("a verified round was not recorded");
    (round++)->emitted = r.emitted;
  }
  s.rounds = std::move(rounds_);
  rounds_.clear(), seconds_ = 0;
  return s;
}

}  // namespace foretoken
