#include "drafters/datastore.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "drafters/suffix_array.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr char kMagic[16] = "foretoken rest\n";  // with its zero
constexpr std::uint32_t kVersion = 1;
constexpr const char* kBuild = "; build one with foretoken datastore TEXTS --model DIR --out FILE";

struct Header {
  char magic[16];
  std::uint32_t version, width;  // bytes of a token
  std::uint64_t tokenizer, vocab, tokens, unused;
  std::uint64_t checksum;  // FNV-1a of all before it

  std::uint64_t sum() const {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (std::size_t i = 0; i < offsetof(Header, checksum); ++i)
      hash = (hash ^ std::uint64_t(reinterpret_cast<const unsigned char*>(this)[i])) * 0x100000001b3;
    return hash;
  }
  std::uint64_t suffixes_at() const { return (sizeof(Header) + tokens * width + 3) / 4 * 4; }
  std::uint64_t file_size() const { return suffixes_at() + tokens * 4; }
};
static_assert(sizeof(Header) == 64 && std::is_trivially_copyable_v<Header>);

std::uint32_t width_for(std::uint64_t vocab) { return vocab <= 0xffff ? 2 : 4; }

// A binary search for the last tokens of a context among all suffixes, one of many that are made side by side.
struct BinarySearch {
  Datastore::Search* search;
  int least, most;      // lengths of matches that are possible still
  int length = 0;       // of the tokens that are looked for now
  bool behind = false;  // looks for the first suffix behind those that begin with them, not for their first
  std::uint32_t low = 0, high = 0, at = 0;  // the answer is in [low, high]
  std::uint32_t begin = 0;                  // where the suffix `at` begins

  // -1, 0, 1: the suffix at `begin` is less, begins with the tokens that are looked for, or is greater.
  int compare(const Datastore& all) const {
    const Token* const wanted = search->context.data() + search->context.size() - length;
    for (int k = 0; k < length; ++k)
      if (const Token t = all.token(begin + std::int64_t(k)); t != wanted[k]) {
        if (begin + std::int64_t(k) >= all.tokens()) return -1;
        return t != Datastore::kSeparator && t < wanted[k] ? -1 : 1;
      }
    return 0;
  }
};

}  // namespace

Datastore::Datastore(const std::filesystem::path& file) {
  const std::string who = "the datastore " + file.string();
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) throw Error(who + " is no file" + kBuild);
  if (std::filesystem::file_size(file, error) < sizeof(Header)) throw Error(who + " is too short to be one" + kBuild);
  file_ = std::make_unique<MappedFile>(file, "datastore");
  read(file_->data(), file_->size(), who);
}

Datastore::Datastore(std::string bytes) : bytes_(std::move(bytes)) {
  read(bytes_.data(), bytes_.size(), "the datastore");
}

void Datastore::read(const char* bytes, std::uint64_t size, const std::string& who) {
  Header h{};
  std::memcpy(&h, bytes, std::min<std::uint64_t>(size, sizeof h));
  if (std::memcmp(h.magic, kMagic, sizeof kMagic) != 0) throw Error(who + " is no datastore of rest" + kBuild);
  if (h.version != kVersion)
    throw Error(who + " has version " + std::to_string(h.version) + " of the format, this program reads version " +
                std::to_string(kVersion) + kBuild);
  if (h.checksum != h.sum() || h.vocab == 0 || h.vocab >= (1ull << 31) || h.width != width_for(h.vocab) ||
      h.tokens == 0 || h.tokens > std::uint64_t(kMostTokens))
    throw Error(who + " has a damaged header" + kBuild);
  if (size != h.file_size())
    throw Error(who + " has " + std::to_string(size) + " bytes, but its header says " + std::to_string(h.file_size()) +
                ": it was not written or copied to its end" + kBuild);
  size_ = std::int64_t(h.tokens), vocab_ = int(h.vocab), wide_ = h.width == 4, tokenizer_ = h.tokenizer;
  tokens_ = bytes + sizeof h;
  suffixes_ = reinterpret_cast<const std::uint32_t*>(bytes + h.suffixes_at());
}

std::string Datastore::bytes_of(std::span<const Token> tokens, int vocab, std::uint64_t tokenizer) {
  if (tokens.empty()) throw Error("the texts of a datastore have no tokens; give longer ones");
  if (std::int64_t(tokens.size()) > kMostTokens)
    throw Error("the texts of a datastore have " + std::to_string(tokens.size()) + " tokens, more than the " +
                std::to_string(kMostTokens) + " that it can hold; give fewer texts");
  Header h{};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  h.version = kVersion, h.vocab = std::uint64_t(vocab), h.width = width_for(h.vocab);
  h.tokenizer = tokenizer, h.tokens = tokens.size(), h.checksum = h.sum();
  std::string bytes(h.file_size(), '\0');
  std::memcpy(bytes.data(), &h, sizeof h);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    std::memcpy(bytes.data() + sizeof h + i * h.width, &tokens[i], h.width);  // -1 is the separator in both widths
  std::vector<std::int32_t> symbols(tokens.begin(), tokens.end());
  for (std::int32_t& s : symbols)
    if (s == kSeparator) s = vocab;  // behind all tokens, as find() expects
  sort_suffixes(symbols, vocab + 1, {reinterpret_cast<std::int32_t*>(bytes.data() + h.suffixes_at()), tokens.size()});
  return bytes;
}

void Datastore::find(std::span<Search> searches, int longest, int shortest) const {
  std::vector<BinarySearch> active;
  active.reserve(searches.size());
  const auto everywhere = [&](BinarySearch& s) { s.low = 0, s.high = std::uint32_t(size_); };
  for (Search& search : searches) {
    BinarySearch s{&search, shortest, std::min(longest, int(search.context.size()))};
    search.length = 0;
    if (s.least > s.most) continue;
    s.length = (s.least + s.most) / 2;
    everywhere(s);
    active.push_back(s);
  }
  // Ends one binary search and begins the next one of the same context; false where there is none.
  const auto next = [&](BinarySearch& s) {
    Search& found = *s.search;
    if (s.behind) return found.last = s.low, false;
    const bool matches = s.low < size_ && (s.begin = begin(s.low), s.compare(*this) == 0);
    if (matches) found.length = s.length, found.first = s.low, s.least = s.length + 1;
    if (!matches) s.most = s.length - 1;
    if (s.least <= s.most) return s.length = (s.least + s.most) / 2, everywhere(s), true;
    if (found.length == 0) return false;
    s.behind = true, s.length = found.length, s.low = found.first + 1, s.high = std::uint32_t(size_);
    return true;
  };
  while (!active.empty()) {
    for (BinarySearch& s : active) s.at = s.low + (s.high - s.low) / 2, fetch_begin(s.at);
    for (BinarySearch& s : active)
      if (s.low < s.high) s.begin = begin(s.at), fetch_token(s.begin);
    for (std::size_t i = 0; i < active.size();) {
      BinarySearch& s = active[i];
      if (s.low < s.high) {
        const int order = s.compare(*this);
        if (order < 0 || (s.behind && order == 0))
          s.low = s.at + 1;
        else
          s.high = s.at;
      }
      if (s.low < s.high || next(s))
        ++i;
      else
        s = active.back(), active.pop_back();
    }
  }
}

}  // namespace foretoken
