// A model computes logits from the rows of a forward, and reads and writes a paged cache of keys and values. This
// module must not know sequences, drafters or verifiers: rows come with their layout only.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/model/config.h"
#include "framework/model/forward_memory.h"
#include "kernels/backend.h"
#include "kernels/serial.h"

namespace foretoken {

// The keys and values of one position in one layer of a cache.
struct LayerShape {
  int kv_heads = 0, head_size = 0;
  DType dtype = DType::f32;
  int window = 0;       // positions to which a row attends in this layer, itself among them; 0: all
  bool bounds = false;  // pages have room for the bounds of their keys (Backend::bound_pages)
  int latent = 0;       // KvLayer::latent
  std::int64_t key_bytes() const {
    return std::int64_t(kv_heads) * head_size * size_of(dtype);
  }  // as many as of values that are apart
  std::int64_t scale_bytes() const { return has_scales(dtype) ? 4ll * kv_heads : 0; }  // of keys; as many of values
  std::int64_t bytes_per_row() const { return (latent > 0 ? 1 : 2) * (key_bytes() + scale_bytes()); }
  std::int64_t bound_bytes() const;  // of a page
  bool operator==(const LayerShape&) const = default;
};

// The keys and values of one position in a model's cache, layer by layer.
struct KvShape {
  std::vector<LayerShape> layers;
  KvShape() = default;
  KvShape(std::vector<LayerShape> layers) : layers(std::move(layers)) {}
  // Layers that are all alike.
  KvShape(int count, int kv_heads, int head_size, DType dtype, int window = 0)
      : layers(std::size_t(count), LayerShape{kv_heads, head_size, dtype, window}) {}
  std::int64_t bytes_per_row() const;
  std::int64_t bound_bytes() const;  // of a page
  // Bytes of a page of `rows` positions: as many rows, and bounds, rounded up so that a vector load of codes or of
  // bounds is aligned in every page.
  std::int64_t page_bytes(int rows) const;
  // The layers' places in pages of `rows` positions in `pool`: the numbers of all layers, then the scales of all, then
  // the bounds of all.
  std::vector<KvLayer> in_pages(const Tensor& pool, int rows) const;
  // Throws Error, which names `model`, where heads have a size that their type of numbers does not take.
  void expect_heads(const std::string& model) const;
  // The window of all layers that have one; 0: none has. Windows of several sizes are not implemented: an Error that
  // names `model`.
  int window(const std::string& model) const;
  bool has_layers_without_window() const;
};

// Points of a model's residual stream: 0 is the embedding of a row's token, k what k layers made of it, and the number
// of layers what the last norm reads. kNormed: what the head multiplies, behind that norm, without the constants of an
// inflated model (SmallModel).
using Tap = int;
constexpr Tap kNormed = -1;

constexpr int kCodedHead = 16;  // heads of a quantized cache are multiples of it: aligned, whatever the layers beside

struct ModelInfo {
  std::string name;  // for messages and results
  int vocab = 0;
  int positions = 0;  // the longest sequence
  int width = 0;      // of the residual stream; 0: not known, and none of its states can be kept
  int skip = 0;       // rows are of a sequence's tokens without so many at its beginning (KvCache)
  KvShape kv;
  std::uint64_t vocabulary = 0;          // Tokenizer::fingerprint: equal where token ids mean the same
  std::vector<Token> stop_tokens;        // end of sequence, from the checkpoint
  std::int64_t weight_bytes = 0;         // of the matrices that forwards read, in the backend's format
  std::int64_t table_bytes = 0;          // of an embedding besides, where it is not the head's memory
  Token mask = -1;                       // stands for a token that is not known, in a parallel drafter's rows; -1: none
  std::optional<SmallModel> small = {};  // of an inflated model
  std::int64_t expert_bytes = 0;         // of weight_bytes: the matrices of experts, of which a row uses only some
  double used_experts = 1;               // the share of them that one row uses
  std::string notice = {};               // one sentence for the user, as Drafter::notice; empty: nothing
  std::int64_t memory() const { return weight_bytes + table_bytes; }
  // Of expert_bytes, those that a forward of so many rows does not read, in the mean, where each row's choice is
  // independent of the others and every expert as probable. Rows of one text agree more often and read less.
  std::int64_t spared_bytes(double rows) const;
};

// One state of the residual stream in a page: the first half of its numbers where a layer has the key of one head, the
// second where it has the value. So caches move, share and compare hidden states as they do keys and values. `cache`:
// the type of the keys and values beside it; states are f32 beside f32 and else bf16.
LayerShape tap_shape(int width, DType cache);
// The cache of a model that keeps these states, and bounds of its keys. A point that the model does not have is an
// Error that names it.
KvShape with_taps(const ModelInfo& model, std::span<const Tap> taps, bool bounds = false);
// Stores x f32 [rows, width] to such a layer.
void store_tap(Backend& backend, const Tensor& x, const KvLayer& kv, const Layout& layout);

// The rows of one forward.
struct Rows {
  Tensor tokens;  // i32 [rows]; -1: absent
  Layout layout;
  Tensor wanted;            // i32 [n]: rows whose logits are computed, then zeros as padding; absent where n == 0
  bool all_wanted = false;  // `wanted` is every row, in order, with as much padding: the logits of row r are row r
  Tensor logits = {};       // f32 [n, vocab]: the output memory of a model that replays; else absent
  // The rows of the residual stream at point taps[i] are stored as layer `layers of the model + i` of the cache, whose
  // shape is tap_shape().
  std::span<const Tap> taps = {};
  // f32 [layout.sequences, layout.table_width], zeros: Backend::attention_mass of all layers is added here. Absent: it
  // is not computed.
  Tensor mass = {};
  Tensor inputs = {};  // f32 [rows, width]: features of the rows besides their tokens; absent: there are none
  Tensor features =
      {};  // f32 [n, ModelInfo::width]: the output memory of features of a model that replays; else absent
};

// What the rows of a forward are given besides tokens: `pieces` rows of `width` numbers each, side by side.
struct RowInputs {
  int pieces = 0;
  std::int64_t width = 0;
  DType dtype = DType::f32;  // f32, bf16
};
// For a model that reads no inputs, or keeps no states either: throws Error, which names `model`, where rows have them.
void expect_no_inputs(const Rows& rows, const std::string& model);
void expect_tokens_alone(const Rows& rows, const std::string& model);

struct Output {
  Tensor logits;         // f32 [n, vocab]; absent where n == 0, or not Model::logits()
  Tensor features = {};  // f32 [n, ModelInfo::width]: what a draft head is fed in place of the target's states, where
                         // Model::features(); else absent
  Tensor mass = {};      // Rows::mass without padding, where a forward was asked for it
};

// The two ends of a model: what makes a token its first state, and what makes its last state logits.
struct Ends {
  Weight embedding;  // [vocab, width], prepared
  Tensor norm;       // f32 [width]: the last norm
  float epsilon = 0;
  Weight head;  // [vocab, width], prepared
  // By which embeddings are multiplied, and the cap of logits (Backend::softcap); 0: none.
  float embedding_scale = 1, softcap = 0;
};

// Sublayers of a model that a part of it leaves out, by the numbers of their layers from 0, ascending: each becomes the
// identity on the residual stream, its norm included (Zhang et al. 2024, arXiv 2309.08168).
struct LeftOut {
  std::vector<int> attention, feed_forward;
  // The last norm and the head too: forwards return the residual stream as features, and no logits.
  bool head = false;
  // Pages of the cache too (PageChoice): what is before a row need not be all of its context.
  bool pages = false;
};

class VocabularyMap;

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;
  // One forward: writes the keys and values of all rows to `kv` (one KvLayer per layer) and returns the logits of the
  // wanted rows. All tensors are on `backend`'s device.
  virtual Output forward(Backend& backend, const Rows& rows, std::span<const KvLayer> kv) = 0;
  // Whether a forward may be a body of Backend::replay: it computes by the backend's operations only, reads no token
  // and no layout on the host, and writes its logits to Rows::logits.
  virtual bool replays() const { return false; }
  // In the memory of this backend, and as long as the model lives. Null where it has none that others could use; where
  // it has some, but others would not compute what it does with them, an Error that says so.
  virtual const Ends* ends(Backend& backend) { return (void)backend, nullptr; }
  // Bytes of weights that a forward reads, those of all experts among them. `inputs`: of one whose rows have some
  // (Rows::inputs).
  virtual std::int64_t read_bytes(bool inputs) const { return (void)inputs, info().weight_bytes; }
  // Whether its forwards return logits of the wanted rows, and features of them.
  virtual bool logits() const { return true; }
  virtual bool features() const { return false; }
  // Whether the rows that a cache keeps are made of states of the target (Rows::inputs).
  virtual bool reads_states() const { return features(); }
  // Of a model of another vocabulary than the target's: the ids that it reads (ReadSequences); null: the target's.
  virtual const VocabularyMap* vocabulary_map() const { return nullptr; }
  // Among which its forwards are divided, so that all of them must run each one; null: it is whole.
  virtual const Rank* rank() const { return nullptr; }
  // See part_of.
  virtual std::shared_ptr<Model> part(const std::shared_ptr<Model>& self, const LeftOut& left_out);
  std::uint64_t serial() const { return serial_.number(); }  // differs from that of every other model of the process
  // Memory for the forwards of one CachedModel.
  std::shared_ptr<ForwardMemory> memory(Backend& backend) { return memories_.lend(backend); }

 private:
  Serial serial_;
  ForwardMemories memories_;
};

// A model that runs the other sublayers of `whole` with its weights, on a cache of the same form: an attention that is
// left out reads and writes no keys. An Error for a model that has no parts, and for a layer that it lacks.
std::shared_ptr<Model> part_of(const std::shared_ptr<Model>& whole, const LeftOut& left_out);

}  // namespace foretoken
