// Any bytes as a datastore: opened, and searched for every context of three of its tokens. Bytes with the right sizes
// and checksum are made of those that have another, so that searches meet any numbers behind the header.
#include <cstring>

#include "drafters/datastore.h"
#include "tests/fuzz/fuzz.h"

using namespace foretoken;

namespace {

void search(const Datastore& store) {
  std::vector<Token> context(3);
  const std::uint32_t size = std::uint32_t(store.tokens());
  for (std::uint32_t at = 0; at < size && at < 64; ++at) {
    for (std::uint32_t k = 0; k < 3; ++k) context[k] = std::max(0, store.token(at + k));
    Datastore::Search s{context};
    store.find({&s, 1}, 3, 1);
    fuzz::expect(s.length == 0 || (s.first < s.last && s.last <= size), "a match has places");
    for (std::uint32_t i = s.first; i < s.last; ++i)
      for (std::uint32_t k = 0; k < 4; ++k) {
        const Token t = store.token(std::int64_t(store.begin(i)) + k);
        fuzz::expect(t >= Datastore::kSeparator && t < store.vocab(), "a token is one of the vocabulary");
      }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::feed(data, size, [](std::string_view bytes) {
    const fuzz::MemoryFile file(bytes);
    constexpr std::size_t kHeader = 64;
    if (bytes.size() > kHeader) {  // the same numbers behind a header that says how many they are
      const std::size_t tokens = (bytes.size() - kHeader) / 6 / 2 * 2 + 2;
      std::string whole = Datastore::bytes_of(std::vector<Token>(tokens, 1), 40, 7);
      std::memcpy(whole.data() + kHeader, bytes.data() + kHeader, std::min(whole.size(), bytes.size()) - kHeader);
      search(Datastore(std::move(whole)));
    }
    search(Datastore(file.path()));
  });
}
