// A datastore of `rest`: the tokens of many texts and the suffix array over them, in one file that is mapped into
// memory. A header of 64 bytes, the tokens (2 bytes each where all ids fit, else 4; the greatest number of that width
// separates texts), padding to 4 bytes, and for each token 4 bytes of the suffix array, all little-endian. Opening
// reads the header alone, which has a checksum; the rest has none, and damaged numbers there only make wrong guesses.
// He et al. 2023 (REST, arXiv 2311.08252). This module must not know models.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "framework/model/mapped_file.h"
#include "kernels/distribution.h"  // Token

namespace foretoken {

class Datastore {
 public:
  static constexpr std::int64_t kMostTokens = (std::int64_t(1) << 31) - 1;  // texts' separators are counted too
  static constexpr Token kSeparator = -1;

  // A file that is no whole datastore is an Error.
  explicit Datastore(const std::filesystem::path& file);
  // In memory, the bytes of a file.
  explicit Datastore(std::string bytes);
  Datastore(const Datastore&) = delete;
  Datastore& operator=(const Datastore&) = delete;

  // What the file with these texts holds: `tokens` has kSeparator before each text but the first. `vocab`: of the
  // tokenizer, and `tokenizer` its fingerprint. More than kMostTokens, or none, is an Error.
  static std::string bytes_of(std::span<const Token> tokens, int vocab, std::uint64_t tokenizer);

  std::int64_t tokens() const { return size_; }  // separators included
  int vocab() const { return vocab_; }
  std::uint64_t tokenizer() const { return tokenizer_; }

  // The last tokens of a context, and where they are.
  struct Search {
    std::span<const Token> context;
    int length = 0;                     // of the longest match; 0: none
    std::uint32_t first = 0, last = 0;  // it is the beginning of the suffixes [first, last) of the suffix array
  };
  // Finds the longest match of each context of `shortest` to `longest` of its last tokens. Binary searches of all
  // contexts are made side by side, so that they wait for memory together.
  void find(std::span<Search> searches, int longest, int shortest) const;

  // Where suffix `i` of the suffix array begins; within [0, tokens()) whatever the file holds.
  std::uint32_t begin(std::uint32_t i) const {
    const std::uint32_t at = suffixes_[i];
    return at < size_ ? at : 0;
  }
  // The token at `i`, kSeparator behind the last one and for what is no token of the vocabulary.
  Token token(std::int64_t i) const {
    if (i >= size_) return kSeparator;
    const std::uint32_t t =
        wide_ ? reinterpret_cast<const std::uint32_t*>(tokens_)[i] : reinterpret_cast<const std::uint16_t*>(tokens_)[i];
    return t < std::uint32_t(vocab_) ? Token(t) : kSeparator;
  }
  // Fetches what begin(i) and token(i) read into the cache.
  void fetch_begin(std::uint32_t i) const { __builtin_prefetch(suffixes_ + i); }
  void fetch_token(std::int64_t i) const { __builtin_prefetch(tokens_ + i * (wide_ ? 4 : 2)); }

 private:
  void read(const char* bytes, std::uint64_t size, const std::string& who);

  std::unique_ptr<MappedFile> file_;
  std::string bytes_;
  const char* tokens_ = nullptr;
  const std::uint32_t* suffixes_ = nullptr;
  std::int64_t size_ = 0;
  int vocab_ = 0;
  bool wide_ = false;
  std::uint64_t tokenizer_ = 0;
};

}  // namespace foretoken
