// A draft head to copy: one linear layer. A hidden state of the target and the embedding of the token after it become
// the next state, each by a matrix; the target's own output matrix makes logits of that. For the tokens behind, the
// layer is fed its own output. The least of heads such as Medusa (Cai et al. 2024, arXiv 2401.10774), Hydra (Ankner et
// al. 2024, arXiv 2402.05109) and EAGLE (Li et al. 2024, arXiv 2401.15077).
#include <foretoken/heads.h>

using namespace foretoken;

namespace {

// What all engines of a sweep share.
class LinearHead {
 public:
  LinearHead(const TensorSource& tensors, const std::string& dtype, Host& host)
      : ends_(host.ends()), width_(host.target().width) {
    const Shape square{width_, width_};
    const WeightLoader load(host.backend(), {{"state.weight", square}, {"token.weight", square}}, tensors, dtype,
                            "auto");
    of_state_ = load.one("state"), of_token_ = load.one("token");
  }

  // states f32 [rows, width], tokens i32 [rows * path]: those behind each state -> logits f32 [rows, vocab] of the
  // next.
  void logits(Backend& b, const Tensor& states, const Tensor& tokens, const Tensor& to) const {
    const std::int64_t rows = states.dim(0), path = tokens.elements() / rows;
    const Tensor embedded = b.embed(ends_.embedding, tokens).reshaped({rows, path * width_});
    Tensor x = states;
    for (std::int64_t k = 0; k < path; ++k) {
      const Tensor next = b.linear(x, of_state_);
      b.linear_add(next, embedded.columns(k * width_, width_), of_token_);
      x = next;
    }
    b.linear_to(to, x, ends_.head);
  }

  // For the books: the bytes of its own weights, and those that a forward reads.
  std::int64_t bytes() const { return of_state_.bytes() + of_token_.bytes(); }
  std::int64_t read() const { return bytes() + ends_.head.bytes(); }
  std::int64_t number() const { return std::int64_t(serial_.number()); }
  std::shared_ptr<ForwardMemory> memory(Backend& b) { return memories_.lend(b); }

 private:
  const Ends& ends_;  // the target's embedding and output matrix
  std::int64_t width_;
  Weight of_state_, of_token_;  // [width, width]
  Serial serial_;
  ForwardMemories memories_;
};

// The head in the rounds of one engine: it gives the logits after each node of a draft tree, level by level.
class LinearRound : public StateRound {
 public:
  LinearRound(Host& host, std::shared_ptr<LinearHead> head)
      : StateRound(host, host.books(head->memory(host.backend()), {std::uint64_t(head->number()), head->bytes()}),
                   /*levels=*/16, /*at_once=*/1),
        backend_(host.backend()),
        head_(std::move(head)) {}

  Output run(std::span<const Segment> segments) override {
    PathRows all = rows(segments.front(), ++level_);  // a path from the root down to a node of this level
    for (const Segment& s : segments)
      for (int node = s.begin; node < s.tree->nodes; ++node) add_state(s, all), all.add_path(*s.tree, node);
    // A GPU records what these operations do, and replays it while shapes and addresses stay the same.
    const auto body = [&](const Tensor& states, const Tensor& tokens, const Tensor& to) {
      head_->logits(backend_, states, tokens, to);
    };
    return {forward_.run(all, target_.vocab, {head_->number(), level_}, head_->read(), body)};
  }

 private:
  Backend& backend_;
  std::shared_ptr<LinearHead> head_;
};

}  // namespace

Entry<Drafter> linear_head() {
  // `head`: a directory, or {"random": SHAPE} in `foretoken check`.
  const auto open = [](const nlohmann::json& head, const std::string& dtype, Host& host) {
    const auto make = [&]() -> std::shared_ptr<LinearHead> {
      if (head.is_string()) return std::make_shared<LinearHead>(Checkpoint::open(head), dtype, host);
      const auto random = random_head_weights(head.at("random"), head.value("seed", std::uint64_t(1)));
      return std::make_shared<LinearHead>(*random, dtype, host);
    };
    return std::make_unique<LinearRound>(
        host, kept_with_target<LinearHead>("linear_head", head.dump() + " " + dtype, host, make));
  };
  return head_entry({.name = "linear_head",
                     .summary = "one linear layer on the target's last hidden state, fed its own output",
                     .source = "",
                     .taps = [](const nlohmann::json&, const ModelInfo&) { return std::vector<Tap>{kNormed}; },
                     .open = open});
}

extern "C" const char* foretoken_abi() { return kAbi; }
extern "C" void foretoken_plugin(Registries& registries) { registries.drafters.add("linear_head", linear_head()); }
