#include "experiments/quantize/calibration.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "experiments/quality/predictions.h"
#include "experiments/quantize/rounding_error.h"
#include "experiments/session/interrupt.h"
#include "framework/cache/cached_model.h"
#include "framework/model/convert.h"
#include "framework/model/transformer.h"
#include "framework/text/tokenizer.h"
#include "kernels/error.h"
#include "kernels/host_backend.h"

namespace foretoken {
namespace {

constexpr const char* kTable = "model.embed_tokens.weight";
constexpr std::string_view kOnly = "model.layers.0.";  // the one layer of the model below
constexpr int kPageRows = 16;

// A model of one layer of a checkpoint, whose embedding holds the states that the layer reads: token i is state i.
class OneLayer final : public TensorSource {
 public:
  OneLayer(const Checkpoint& checkpoint, int layer, const Tensor& states, const Calibration::Matrices& matrices)
      : checkpoint_(checkpoint),
        layer_("model.layers." + std::to_string(layer) + "."),
        states_(states),
        matrices_(matrices) {}

  Tensor tensor(const std::string& name, const Shape& expected) const override {
    if (name == kTable) return states_;
    return checkpoint_.tensor(name.starts_with(kOnly) ? layer_ + name.substr(kOnly.size()) : name, expected);
  }
  Weight matrix(const std::string& module, const Shape& expected) const override {
    const auto given = module.starts_with(kOnly) ? matrices_.find(module.substr(kOnly.size())) : matrices_.end();
    return given != matrices_.end() ? given->second : TensorSource::matrix(module, expected);
  }
  std::vector<std::string> names() const override { return {}; }
  std::string where() const override { return checkpoint_.where(); }

 private:
  const Checkpoint& checkpoint_;
  std::string layer_;
  Tensor states_;
  const Calibration::Matrices& matrices_;
};

}  // namespace

const std::vector<std::vector<std::string>>& Calibration::products() {
  static const std::vector<std::vector<std::string>> all = {
      {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
      {"self_attn.o_proj"},
      {"mlp.gate_proj", "mlp.up_proj"},
      {"mlp.down_proj"}};
  return all;
}

std::size_t Calibration::product_of(const std::string& module) {
  for (std::size_t p = 0; p < products().size(); ++p)
    if (std::ranges::find(products()[p], module) != products()[p].end()) return p;
  throw Error("the matrix '" + module +
              "' belongs to no product of a layer that calibration knows; round it with --method rtn");
}

Calibration::Calibration(Backend& device, const ModelConfig& config, const Checkpoint& checkpoint,
                         const std::vector<std::vector<Token>>& windows)
    : device_(device), config_(config), checkpoint_(checkpoint) {
  if (config.post_norms || config.fused || config.scaled_embedding || config.local_theta > 0 || config.gains_less_one ||
      !config.still_layers.empty())
    throw Error(checkpoint.where() + " is a " + config.architecture +
                ", whose layers calibration does not run one by one; round it with --method rtn");
  std::int64_t all = 0;
  for (const auto& w : windows) {
    all += std::int64_t(w.size());
    lengths_.push_back(int(w.size()));
  }
  states_ = Tensor::host({all, config.width}, DType::f32);
  const Tensor table = checkpoint.tensor(kTable, {config.vocab, config.width});
  std::int64_t at = 0;
  for (const auto& w : windows)
    for (const Token t : w) {
      if (t < 0 || t >= config.vocab)
        throw Error("the tokenizer has the token " + std::to_string(t) + ", outside the model's vocabulary of " +
                    std::to_string(config.vocab) + "; give the model its own tokenizer");
      convert(table.rows(t, 1), states_.rows(at++, 1));
    }
  config_.layers = 1;
  config_.vocab = int(all);
  config_.tied_head = true;
}

Tensor Calibration::run(int layer, const Matrices& matrices, const Observe& observe) {
  std::size_t product = 0;
  int rows = 0;  // of the window; those behind them are padding
  const auto here = [&](const Tensor& x) { return converted(on_host(device_, x.rows(0, rows)), DType::f32); };
  ObservingBackend backend(device_, [&](const Tensor& x) {
    if (observe) observe(product, here(x));
    product = (product + 1) % products().size();
  });
  const auto model = std::make_shared<Transformer>(backend, config_, OneLayer(checkpoint_, layer, states_, matrices),
                                                   "the model", 0, TransformerOptions{});
  const int longest = *std::ranges::max_element(lengths_);
  PagePool pool(backend, model->info().kv.page_bytes(kPageRows), (longest + kPageRows - 1) / kPageRows);
  CachedModel cached(backend, model, pool, false);
  const Tensor next = Tensor::host(states_.shape(), DType::f32);
  Sequence sequence;
  Token at = 0;
  for (const int length : lengths_) {
    check_interrupt();
    ++sequence.id;
    rows = length;
    sequence.tokens.resize(std::size_t(length));
    std::iota(sequence.tokens.begin(), sequence.tokens.end(), at);
    (void)cached.unseen(sequence);
    (void)cached.reserve(sequence, length);  // the pool has pages for the longest window
    const Segment whole{&sequence, length, nullptr, 0};
    (void)cached.run({&whole, 1});
    cached.forget(sequence);
    copy_on_host(here(backend.states()), next.rows(at, length));
    at += length;
  }
  return next;
}

std::vector<std::vector<Token>> calibration_windows(const DenseModel& model, const MethodOptions& o) {
  constexpr int kWindow = 512;
  constexpr long kLeast = 128;
  const auto tokenizer = Tokenizer::load(model.directory());
  const std::vector<Document> documents = documents_of(o.calibrate, "--calibrate", *tokenizer);
  const int window = std::min(kWindow, model.config().positions), opening = documents.front().opening;
  std::vector<std::vector<Token>> all;
  long tokens = 0;
  for (const Window& w : windows_of(documents, {window, window - opening - 1, o.tokens.value_or(kCalibrationTokens)})) {
    all.push_back(w.tokens(documents));
    tokens += long(all.back().size());
  }
  if (tokens < kLeast)
    throw Error("the calibration text has " + std::to_string(tokens) +
                " tokens, too few to say how inputs vary; give one of at least " + std::to_string(kLeast) +
                " with --calibrate");
  return all;
}

}  // namespace foretoken
