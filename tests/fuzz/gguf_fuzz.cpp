// Any bytes as a GGUF file: all tensors are within the file, and its configuration, tensors and tokenizer are read or
// refused, each by itself.
#include "framework/model/gguf/gguf_tensors.h"
#include "framework/model/gguf/gguf_tokenizer.h"
#include "framework/model/model_tensors.h"
#include "tests/fuzz/fuzz.h"

using namespace foretoken;

namespace {

std::uint64_t sum_of(const char* at, std::uint64_t count) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < count; ++i) sum += static_cast<unsigned char>(at[i]);
  return sum;
}

void read_tensors(const std::shared_ptr<const GgufFile>& file) {
  const ModelConfig config = gguf_config(*file);
  fuzz::expect((config.latent || config.head_size % 2 == 0) && config.heads % config.kv_heads == 0,
               "sizes are consistent");
  fuzz::expect(
      config.rope_frequencies().size() == std::size_t((config.rotary > 0 ? config.rotary : config.head_size) / 2),
      "a head is rotated");
  const GgufTensors tensors(file, config);
  if (config.layers > 4) return;  // as many names
  expect_no_other_tensors(config, tensors);
  for (const auto& [name, shape] : tensors_of(config)) {
    const Tensor t = tensors.tensor(name, shape);
    sum_of(t.data<char>(), std::uint64_t(t.bytes()));
    if (shape.rank() == 2) tensors.matrix(name.substr(0, name.size() - std::string(".weight").size()), shape);
  }
}

void read_tokenizer(const GgufFile& file) {
  const auto tokenizer = gguf_tokenizer(file.metadata());
  const std::vector<Token> tokens = tokenizer->encode("Hello,  world 12\n<s>aab");
  for (const Token t : tokens) fuzz::expect(t >= 0 && t < tokenizer->vocab(), "ids are below the vocabulary's size");
  tokenizer->decode(tokens, true);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto read = [&](const auto& part) {
    fuzz::feed(data, size, [&](std::string_view bytes) {
      const fuzz::MemoryFile memory(bytes);
      part(GgufFile::open(memory.path()));
    });
  };
  read([&](const std::shared_ptr<const GgufFile>& file) {
    std::uint64_t held = 0;
    for (const auto& [name, t] : file->tensors()) sum_of(t.data, t.bytes), held += t.bytes;
    fuzz::expect(held <= size, "tensors are parts of the file");
  });
  read([](const std::shared_ptr<const GgufFile>& file) { read_tensors(file); });
  read([](const std::shared_ptr<const GgufFile>& file) { read_tokenizer(*file); });
  return 0;
}
