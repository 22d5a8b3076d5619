// Any bytes as a checkpoint: all tensors of its header are within the file, every byte of every tensor can be read, and
// a model of one layer reports the tensors that it does not use.
#include "framework/model/checkpoint.h"
#include "framework/model/model_tensors.h"
#include "tests/fuzz/fuzz.h"

using namespace foretoken;

namespace {

ModelConfig one_layer() {
  ModelConfig c;
  c.architecture = "LlamaForCausalLM";
  c.vocab = c.width = c.ffn = c.head_size = 2;
  c.layers = c.heads = c.kv_heads = c.prediction_layers = 1;
  c.tied_head = true;
  return c;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::feed(data, size, [](std::string_view bytes) {
    const fuzz::MemoryFile file(bytes);
    const Checkpoint checkpoint = Checkpoint::open_file(file.path());
    std::int64_t held = 0;
    unsigned sum = 0;
    for (const std::string& name : checkpoint.names()) {
      const Tensor t = checkpoint.tensor(name);
      const auto* at = static_cast<const unsigned char*>(t.raw());
      for (std::int64_t i = 0; i < t.bytes(); ++i) sum += at[i];
      held += t.bytes();
    }
    fuzz::expect(sum <= 255 * std::uint64_t(held) && std::uint64_t(held) <= bytes.size(),
                 "tensors are parts of the file");
    static const ModelConfig config = one_layer();
    expect_no_other_tensors(config, checkpoint);
  });
}
