// Any bytes as a quantized checkpoint: a line of JSON, quantization_config, and the bytes of a safetensors file. Every
// matrix of it is refused, or is a weight whose codes, scales and order fit together.
#include <vector>

#include "framework/model/quantized/quantization.h"
#include "framework/text/json_file.h"
#include "tests/fuzz/fuzz.h"

using namespace foretoken;

namespace {

void expect_weight(const Weight& w, const Shape& shape) {
  fuzz::expect(w.out == shape[0] && w.in == shape[1], "a weight has the requested shape");
  if (!w.format) return;
  fuzz::expect(w.group > 0 && w.in % w.group == 0, "groups divide the inputs");
  const Shape groups{w.out, w.in / w.group};
  fuzz::expect(w.values.shape() == shape && w.values.dtype() == DType::u8, "codes are bytes");
  fuzz::expect(w.scales.shape() == groups && (!w.zeros || w.zeros.shape() == groups), "scales are of groups");
  for (const std::uint8_t code : w.values.values<std::uint8_t>())
    fuzz::expect(code < w.format->numbers().size(), "codes mean numbers");
  if (!w.order) return;
  std::vector<bool> seen(std::size_t(w.in), false);
  for (const std::int32_t i : w.order.values<std::int32_t>()) {
    fuzz::expect(i >= 0 && i < w.in && !seen[std::size_t(i)], "an order names every input once");
    seen[std::size_t(i)] = true;
  }
}

// An Error is a sentence; the next matrix is read all the same.
void read_matrix(const TensorSource& tensors, const std::string& name, const Shape& shape) {
  try {
    expect_weight(tensors.matrix(name.substr(0, name.size() - 7), shape), shape);
    fuzz::expect(tensors.tensor(name, shape).shape() == shape, "a dense copy has the requested shape");
  } catch (const Error& e) {
    fuzz::expect(std::string_view(e.what()).size() > 10, "a refusal is a sentence");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::feed(data, size, [](std::string_view bytes) {
    const std::size_t line = std::min(bytes.find('\n'), bytes.size());
    const nlohmann::json settings = parse_json(bytes.substr(0, line), "config.json");
    const auto quantization = read_quantization(Fields(settings, "config.json", "quantization_config."));
    for (const WeightFormat* format : quantization->formats()) fuzz::expect(format != nullptr, "formats are named");
    (void)quantization->activations().text();
    const fuzz::MemoryFile file(bytes.substr(std::min(line + 1, bytes.size())));
    const auto tensors =
        quantized(std::make_shared<const Checkpoint>(Checkpoint::open_file(file.path())), quantization);
    for (const std::string& name : tensors->names())
      if (name.ends_with(".weight"))
        for (const Shape& shape : {Shape{8, 32}, Shape{32, 32}, Shape{16, 64}, Shape{3, 5}})
          read_matrix(*tensors, name, shape);
  });
}
