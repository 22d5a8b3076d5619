// Any text as a model's config.json: an accepted one has consistent sizes.
#include <cmath>

#include "framework/model/config.h"
#include "tests/fuzz/fuzz.h"

using namespace foretoken;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::feed(data, size, [](std::string_view text) {
    const ModelConfig m = ModelConfig::parse(text, "config.json");
    fuzz::expect(m.vocab > 0 && m.width > 0 && m.layers > 0 && m.ffn > 0 && m.positions > 0, "sizes are above 0");
    fuzz::expect(m.prediction_layers >= 0 && m.prediction_layers <= 64, "further layers are few");
    fuzz::expect(m.heads % m.kv_heads == 0 && (m.latent || m.head_size % 2 == 0), "heads fit");
    fuzz::expect(m.norm_epsilon > 0 && m.window >= 0, "epsilon and window are in range");
    for (const int id : m.eos) fuzz::expect(id >= 0 && id < m.vocab, "ends of sequence are tokens");
    for (const float f : m.rope_frequencies()) fuzz::expect(std::isfinite(f), "frequencies are numbers");
  });
}
