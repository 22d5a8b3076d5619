// Forwards of a draft head that has no cache: features and tokens of a path go in for each row, logits come out. A
// device records them as it does CachedModel's. This module must not know what is computed of them.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "framework/decode/draft_tree.h"
#include "framework/model/forward_books.h"
#include "framework/model/model.h"

namespace foretoken {

struct PathRows {
  RowInputs form = {};                       // of the features
  std::vector<std::uint64_t> features = {};  // device addresses, [rows * form.pieces]
  int path = 0;                              // tokens of a row
  // [rows * path]: the tokens that the host knows, and the device addresses of the others, else null.
  std::vector<Token> known = {};
  std::vector<const Token*> drawn = {};

  int rows() const { return int(features.size()) / form.pieces; }
  // The tokens from the root of `tree` down to a node, one of which follows another.
  void add_path(const DraftTree& tree, int node);
};

class PathForward {
 public:
  // `books`: of the forwards (Host::books). `vocab`: of the tokens. `most`: numbers in a row of logits at most.
  PathForward(Backend& backend, std::shared_ptr<ForwardBooks> books, int vocab, std::int64_t most)
      : backend_(backend), books_(std::move(books)), vocab_(vocab), most_(most) {}

  // features f32 [rows, pieces * width], tokens i32 [rows * path] -> logits f32 [rows, any width], with rows of
  // padding. A body of Backend::replay.
  using Body = std::function<void(const Tensor& features, const Tensor& tokens, const Tensor& logits)>;
  // f32 [rows, width]: memory that is not reused while a Tensor refers to it. `key` identifies the body, which reads
  // so many bytes of weights.
  Tensor run(const PathRows& rows, std::int64_t width, std::vector<std::int64_t> key, std::int64_t weight_bytes,
             const Body& body);

 private:
  Backend& backend_;
  std::shared_ptr<ForwardBooks> books_;
  int vocab_;
  std::int64_t most_;
};

}  // namespace foretoken
