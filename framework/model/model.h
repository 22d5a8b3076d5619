// A model is whatever turns rows into logits while it reads and writes a paged cache. This module must not know
// sequences, drafters or verifiers: rows come with their layout, and that is all.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/model/forward_memory.h"
#include "kernels/backend.h"
#include "kernels/serial.h"

namespace foretoken {

// What a position holds in one layer of a cache: a key and a value.
struct LayerShape {
  int kv_heads = 0, head_size = 0;
  DType dtype = DType::f32;
  int window = 0;  // positions that a row sees in this layer, itself among them; 0: all
  std::int64_t bytes_per_row() const { return 2ll * kv_heads * head_size * size_of(dtype); }
  bool operator==(const LayerShape&) const = default;
};

// What a position holds in a cache of this model: layers of any shapes.
struct KvShape {
  std::vector<LayerShape> layers;
  KvShape() = default;
  KvShape(std::vector<LayerShape> layers) : layers(std::move(layers)) {}
  // Layers that are all alike.
  KvShape(int count, int kv_heads, int head_size, DType dtype, int window = 0)
      : layers(std::size_t(count), LayerShape{kv_heads, head_size, dtype, window}) {}
  std::int64_t bytes_per_row() const;
  // What all layers see; windows of several sizes are an Error that names `model`, since nothing serves them yet.
  int window(const std::string& model) const;
};

struct ModelInfo {
  std::string name;  // for messages and results
  int vocab = 0;
  int positions = 0;  // the longest sequence
  KvShape kv;
  std::uint64_t vocabulary = 0;    // Tokenizer::fingerprint: equal where token ids mean the same
  std::vector<Token> stop_tokens;  // end of sequence, as the checkpoint says
  std::int64_t weight_bytes = 0;   // of the matrices that one forward reads, as the backend holds them
};

// The rows of one forward.
struct Rows {
  Tensor tokens;  // i32 [rows]; -1: absent
  Layout layout;
  Tensor wanted;  // i32 [n]: rows whose logits are asked for, ascending (0 behind the last, as padding); absent where n
                  // == 0
  bool all_wanted = false;  // `wanted` is every row, in order: its length does not tell, since both are padded
  Tensor logits = {};       // f32 [n, vocab]: where a model that replays writes them
  // After layer taps[i] the rows of the residual stream are stored as layer `layers of the model + i` of the cache.
  std::span<const int> taps = {};
  Tensor inputs = {};  // [rows, width]: features that come with the rows' tokens; absent: there are none
};
// Throws Error where a model that knows of neither, `model`, is given taps or inputs.
void expect_tokens_alone(const Rows& rows, const std::string& model);

struct Output {
  Tensor logits;  // f32 [n, vocab]; absent where nothing was wanted
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;
  virtual Output forward(Backend& backend, const Rows& rows, std::span<const KvLayer> kv) = 0;
  // Whether a forward is a body for Backend::replay: it asks the backend for everything, looks at no token and no
  // layout itself, and writes its logits to Rows::logits.
  virtual bool replays() const { return false; }
  std::uint64_t serial() const { return serial_.number(); }
  // For the forwards of one cached model.
  std::shared_ptr<ForwardMemory> memory(Backend& backend) { return memories_.lend(backend); }

 private:
  Serial serial_;
  ForwardMemories memories_;
};

}  // namespace foretoken
