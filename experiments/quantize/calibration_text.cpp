#include "experiments/quantize/calibration_text.h"

#include "experiments/quality/documents.h"
#include "experiments/quantize/safetensors_file.h"
#include "framework/model/safetensors.h"
#include "framework/text/json_file.h"
#include "framework/text/tokenizer.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStates = "states";

fs::path states_file(const fs::path& folder, int layer) {
  return folder / ("states-" + std::to_string(layer) + ".safetensors");
}

Backend& backend_of(Workbench& bench, const std::string& device) {
  return bench.backend({{"device", device}, {"threads", 0}, {"numerics", "fast"}});
}

// The text's tokens in windows that are read together.
std::vector<std::vector<Token>> windows_for(const DenseModel& model, const MethodOptions& o) {
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

}  // namespace

CalibrationText::CalibrationText(const DenseModel& model, const MethodOptions& o)
    : device_(backend_of(bench_, o.device.value_or("auto"))),
      host_(device_.device().kind == Device::Kind::cpu ? device_ : backend_of(bench_, "cpu")),
      text_(device_, model.config(), model.checkpoint(), windows_for(model, o)),
      layers_(model.config().layers) {}

Tensor CalibrationText::observe(int layer, const fs::path& kept, const Calibration::Observe& observe) {
  if (const auto file = states_file(kept, layer); at_ != layer && layer > 0) {
    if (!has_file(file))
      throw Error(file.string() + ", which going on needs, is missing; remove " + kept.parent_path().string() +
                  " and give the command again");
    text_.set_states(map_safetensors(file).at(kStates));
  }
  at_ = layer;
  return text_.observe(layer, observe);
}

void CalibrationText::finish(int layer, const Tensor& outputs, const fs::path& kept) {
  if (last(layer)) return;
  const StoredTensor states = stored_tensor(kStates, outputs);
  write_safetensors(states_file(kept, layer + 1), {&states, 1});
  text_.set_states(outputs);
  at_ = layer + 1;
  fs::remove(states_file(kept, layer - 1));  // the layer before this is finished
}

}  // namespace foretoken
