// Byte-pair encoding, over bytes or over characters: the vocabulary and the merges of a tokenizer.json. This module
// must not know how text becomes words.
//   Sennrich et al. 2016 (arXiv 1508.07909); over bytes: Radford et al. 2019 (GPT-2); over characters, bytes where a
//   character is not in the vocabulary: Kudo and Richardson 2018 (SentencePiece, arXiv 1808.06226).
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "framework/text/json_file.h"
#include "kernels/distribution.h"  // Token

namespace foretoken {

class Bpe {
 public:
  // `spec` is "model" of a tokenizer.json. `byte_level`: its words are bytes, written in GPT-2's alphabet; otherwise
  // characters. Other models, dropout and affixes are an Error that names them. In place of "merges" it may have
  // "scores", by id, as SentencePiece does: any two tokens merge into a token that has a score (null: it has none), the
  // highest score first.
  static std::unique_ptr<const Bpe> load(const nlohmann::json& spec, const std::string& where, bool byte_level);

  // Appends the tokens of one word (bytes of valid UTF-8). n log n in its length. Safe from any thread.
  void encode(std::string_view word, std::vector<Token>& out) const;
  // The vocabulary by id, spelled as in the file.
  const std::vector<std::pair<Token, std::string>>& entries() const { return entries_; }

 private:
  struct Merge {
    int rank;
    Token token;
  };
  struct PairHash {
    std::size_t operator()(std::uint64_t x) const { return std::size_t((x ^ x >> 29) * 0x9e3779b97f4a7c15ull >> 7); }
  };

  // A token of a word that is being merged. One that was merged into its left neighbour has token -1.
  struct Symbol {
    Token token;
    int previous, next;  // -1: none
  };

  Bpe() = default;
  void read_vocabulary(const Fields& model);
  void expect_all_bytes(const std::string& where) const;
  void read_fallbacks(const Fields& model);
  // The bytes that merges and lookups use; none if no sequence of merges gives this word.
  std::optional<std::string> spelled(const std::string& word) const;
  std::vector<Token> symbols_of(std::string_view word) const;
  void add_character(std::string_view character, std::vector<Token>& tokens, bool& unknown) const;
  void read_merges(const Fields& model);
  void read_scores(const Fields& model);
  void add_merges_into(Token whole, std::string_view word, int rank);
  const Merge* merge(Token left, Token right) const;
  void merge_all(std::string_view word, std::vector<Token>& out) const;

  std::vector<std::pair<Token, std::string>> entries_;
  std::unordered_map<std::string, Token> token_of_bytes_;
  std::array<Token, 256> token_of_byte_{};
  std::unordered_map<std::uint64_t, Merge, PairHash> merges_;
  bool byte_level_ = true;
  Token unknown_ = -1;         // over characters: for one that neither the vocabulary nor its byte tokens contain
  bool fuse_unknown_ = false;  // adjacent unknown characters are one token
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;  // a word of the vocabulary is that token, even where merges would give others

  static constexpr std::size_t kCachedWords = 1 << 14, kCachedBytes = 256;
  mutable std::mutex cache_lock_;
  mutable std::unordered_map<std::string, std::vector<Token>> cache_;
};

}  // namespace foretoken
