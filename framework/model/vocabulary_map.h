// A model whose vocabulary is not the target's: which tokens both have (token-level intersection: Timor et al. 2025,
// arXiv 2502.05202), and how the model reads a sequence of the target's tokens. Equal are tokens of equal bytes within
// a text, however a file spells them; special tokens are equal to special tokens of the same text alone. This module
// must not know models, sequences or drafters.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "framework/text/tokenizer.h"

namespace foretoken {

class VocabularyMap {
 public:
  struct Side {
    std::string model;  // for messages
    int vocab = 0;      // columns of its logits
    std::shared_ptr<const Tokenizer> tokenizer;
  };
  // Without a common token: an Error.
  VocabularyMap(const Side& target, const Side& own);

  int common() const { return common_; }  // tokens that both have
  // The ids of what the model reads: a common token has the target's id, any other the target's vocab + its own.
  int ids() const { return int(own_ids_.size()); }
  Token id_of(Token own) const;
  std::span<const Token> own_ids() const { return own_ids_; }        // by these ids; -1: the model lacks it
  std::span<const Token> target_ids() const { return target_ids_; }  // by its own ids; -1: the target lacks it

  // A prompt of the target's tokens, as the model's tokenizer reads its text. What tokenizers put before a text is
  // exchanged. Special tokens that the model lacks are left out, as Transformers does; what has nothing else is one
  // token.
  std::vector<Token> read_prompt(std::span<const Token> prompt) const;
  // Appends what the model reads for one token of an output: the common token, or the tokens of its text, or none. It
  // depends on no other token, so what was read never changes while an output grows.
  void read(Token generated, std::vector<Token>& to) const;

  // "the model M has N of the K tokens of the target T".
  const std::string& summary() const { return summary_; }

 private:
  void read_text(std::string_view text, std::vector<Token>& to) const;
  void append(std::span<const Token> own, std::vector<Token>& to) const;

  Side target_, own_;
  std::vector<Token> own_ids_, target_ids_;
  std::vector<Token> bytes_;  // [256]: the model's token of a single byte; -1: none
  int common_ = 0;
  std::string summary_;
};

}  // namespace foretoken
