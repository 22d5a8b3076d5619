// GPTQ layer by layer: the inputs of a layer are those that the rounded layers before it give.
#include "experiments/quality/documents.h"
#include "experiments/quantize/calibration.h"
#include "experiments/quantize/gptq.h"
#include "experiments/quantize/method.h"
#include "framework/model/in_parallel.h"
#include "framework/model/safetensors.h"
#include "framework/text/tokenizer.h"
#include "kernels/error.h"

namespace foretoken::methods {
namespace {

constexpr double kDamping = 0.01;

// The text's tokens in windows that are read together.
std::vector<std::vector<Token>> windows_for(const DenseModel& model, const MethodOptions& o) {
  constexpr int kWindow = 512;
  constexpr long kLeast = 128;
  const auto tokenizer = Tokenizer::load(model.directory());
  const std::vector<Document> documents = documents_of(o.calibrate, "--calibrate", *tokenizer);
  const int window = std::min(kWindow, model.config().positions), opening = documents.front().opening;
  std::vector<std::vector<Token>> all;
  long tokens = 0;
  for (const Window& w : windows_of(documents, {window, window - opening - 1, o.tokens})) {
    all.push_back(w.tokens(documents));
    tokens += long(all.back().size());
  }
  if (tokens < kLeast)
    throw Error("the calibration text has " + std::to_string(tokens) +
                " tokens, too few to say how inputs vary; give " + "one of at least " + std::to_string(kLeast) +
                " with --calibrate");
  return all;
}

class Gptq final : public Method {
 public:
  Gptq(const WeightFormat& format, const DenseModel& model, const MethodOptions& o)
      : format_(format),
        text_(model.config(), model.checkpoint(), windows_for(model, o)),
        layers_(model.config().layers) {}

  void begin(int layer, const std::filesystem::path& kept) override {
    if (const auto file = states_file(kept, layer); at_ != layer && layer > 0)
      text_.set_states(map_safetensors(file).at(kStates));
    at_ = layer, outputs_ = {};
    inputs_.clear();
    text_.observe(layer, [this](std::size_t product, const Tensor& x) {
      for (const std::string& module : Calibration::products()[product]) {
        const auto found = inputs_.try_emplace(Calibration::products()[product].front(), x.dim(1)).first;
        if (module == found->first) found->second.add(x);
      }
    });
  }

  Weight round(const std::string& module, const Weight& dense) override {
    const InputProducts& inputs = inputs_.at(first_of(module));
    Weight rounded = foretoken::gptq(dense, format_, inputs, kDamping, by_all_cores);
    outputs_ += foretoken::output_error(dense, rounded, inputs);
    return rounded;
  }

  void end(int layer, const std::map<std::string, Weight>& rounded, const std::filesystem::path& kept) override {
    if (layer + 1 == layers_) return;  // no layer reads its outputs
    text_.advance(layer, rounded);
    const StoredTensor states = stored_tensor(kStates, text_.states());
    write_safetensors(states_file(kept, layer + 1), {&states, 1});
    at_ = layer + 1;
    std::filesystem::remove(states_file(kept, layer - 1));  // the layer before this is finished
  }

  std::optional<double> output_error() const override { return outputs_.relative(); }

 private:
  static constexpr const char* kStates = "states";
  static std::filesystem::path states_file(const std::filesystem::path& folder, int layer) {
    return folder / ("states-" + std::to_string(layer) + ".safetensors");
  }
  // The module whose name the inputs of its product have.
  static std::string first_of(const std::string& module) {
    for (const auto& together : Calibration::products())
      for (const std::string& m : together)
        if (m == module) return together.front();
    throw Error("the matrix '" + module + "' belongs to no product of a layer that calibration knows");
  }

  const WeightFormat& format_;
  Calibration text_;
  int layers_, at_ = 0;  // the layer that reads the states
  std::map<std::string, InputProducts> inputs_;
  SquaredError outputs_;
};

}  // namespace

std::unique_ptr<Method> gptq(const WeightFormat& format, const DenseModel& model, const MethodOptions& options) {
  return std::make_unique<Gptq>(format, model, options);
}

}  // namespace foretoken::methods
