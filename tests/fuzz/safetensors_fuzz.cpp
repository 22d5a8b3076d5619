// Any bytes as a checkpoint: what its header says lies within the file, and every byte of every tensor may be read.
#include "framework/model/checkpoint.h"
#include "tests/fuzz/fuzz.h"

using namespace foretoken;

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
  });
}
