#include "experiments/quantize/calibration.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "experiments/quantize/observing_backend.h"
#include "experiments/session/interrupt.h"
#include "framework/cache/cached_model.h"
#include "framework/model/convert.h"
#include "framework/model/transformer.h"
#include "kernels/error.h"
#include "kernels/host_backend.h"

namespace foretoken {
namespace {

constexpr const char* kTable = "model.embed_tokens.weight";
constexpr const char* kOnly = "model.layers.0.";  // the one layer of the model below
constexpr int kPageRows = 16;

// A model of one layer of a checkpoint, whose embedding holds the states that the layer reads: token i is state i.
class OneLayer final : public TensorSource {
 public:
  OneLayer(const Checkpoint& checkpoint, int layer, const Tensor& states, const std::map<std::string, Weight>& matrices)
      : checkpoint_(checkpoint),
        layer_("model.layers." + std::to_string(layer) + "."),
        states_(states),
        matrices_(matrices) {}

  Tensor tensor(const std::string& name, const Shape& expected) const override {
    if (name == kTable) return states_;
    return checkpoint_.tensor(in_checkpoint(name), expected);
  }
  Weight matrix(const std::string& module, const Shape& expected) const override {
    const auto given = module.starts_with(kOnly) ? matrices_.find(module.substr(std::strlen(kOnly))) : matrices_.end();
    return given != matrices_.end() ? given->second : TensorSource::matrix(module, expected);
  }
  std::vector<std::string> names() const override { return {}; }
  std::string where() const override { return checkpoint_.where(); }

 private:
  std::string in_checkpoint(const std::string& name) const {
    return name.starts_with(kOnly) ? layer_ + name.substr(std::strlen(kOnly)) : name;
  }

  const Checkpoint& checkpoint_;
  std::string layer_;
  Tensor states_;
  const std::map<std::string, Weight>& matrices_;
};

// f32 rows on the host, of a device's rows in its own activation type, whose last ones may be padding.
Tensor on_host(Backend& device, const Tensor& x, std::int64_t rows) {
  const Tensor here = Tensor::host({rows, x.dim(1)}, x.dtype());
  device.copy(x.rows(0, rows), here);
  device.synchronize();
  return converted(here, DType::f32);
}

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
  std::int64_t all = 0;
  for (const auto& w : windows) all += std::int64_t(w.size()), lengths_.push_back(int(w.size()));
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
  config_.layers = 1, config_.vocab = int(all), config_.tied_head = true;
}

Tensor Calibration::observe(int layer, const Observe& observe) { return run(layer, {}, observe); }

Tensor Calibration::outputs(int layer, const std::map<std::string, Weight>& matrices) {
  return run(layer, matrices, {});
}

Tensor Calibration::run(int layer, const std::map<std::string, Weight>& matrices, const Observe& observe) {
  std::size_t product = 0;
  int rows = 0;  // of the window
  ObservingBackend backend(device_, [&](const Tensor& x) {
    if (observe) observe(product, on_host(device_, x, rows));
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
    ++sequence.id, rows = length;
    sequence.tokens.resize(std::size_t(length));
    std::iota(sequence.tokens.begin(), sequence.tokens.end(), at);
    (void)cached.unseen(sequence);
    (void)cached.reserve(sequence, length);  // the pool has pages for the longest window
    const Segment whole{&sequence, length, nullptr, 0};
    (void)cached.run({&whole, 1});
    cached.forget(sequence);
    copy_on_host(on_host(device_, backend.states(), length), next.rows(at, length));
    at += length;
  }
  return next;
}

}  // namespace foretoken
