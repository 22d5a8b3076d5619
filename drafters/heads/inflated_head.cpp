#include "drafters/heads/inflated_head.h"

#include <algorithm>

#include "framework/model/layer_inflation.h"
#include "framework/model/shapes.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;

bool is_inflated(const json& head) { return head.is_object() && head.contains("inflate"); }

// The tensors of all kinds of heads. Their layers are those of a model, and what makes their input of states and
// embeddings adds to the stream as those do.
class InflatedHead : public TensorSource {
 public:
  InflatedHead(std::shared_ptr<const TensorSource> small_tensors, const ModelConfig& small, const ModelConfig& large,
               int draft_vocab, bool wide)
      : where_(small_tensors->where()),
        small_(small),
        large_(large),
        draft_vocab_(draft_vocab),
        layers_(small_tensors, small, large,
                small_tensors->tensor("layers.0.mlp.down_proj.weight", {small.width, small.ffn}), wide, {}) {}

  Tensor tensor(const std::string& name, const Shape& expected) const override {
    const bool is_bias = name.ends_with(".bias");
    if (name.starts_with("fc.") && is_bias) return layers_.vector(name, expected, layers_.width());
    if (name.starts_with("fc.")) return layers_.sum(name, expected, layers_.width(), inputs(expected[1]));
    if (name.starts_with("layers.")) return layers_.layer(name, expected);
    if (expected.rank() == 1) return layers_.gains(name, expected);
    const bool is_table = name == "embed_tokens.weight" || name == "markov_head.markov_w1.weight";
    const int rows = int(expected[0]), known = is_table || draft_vocab_ == 0 ? small_.vocab : draft_vocab_;
    return layers_.table(name, name, expected, first_places(known, rows), inputs(expected[1]));
  }
  std::vector<std::string> names() const override { return {}; }
  std::string where() const override { return where_ + " (inflated)"; }

 private:
  // Several streams side by side, or numbers that are as many in the small head.
  Places inputs(std::int64_t n) const {
    if (n % large_.width != 0) return first_places(int(n), int(n));
    return first_places(small_.width, large_.width, int(n / large_.width));
  }

  std::string where_;
  ModelConfig small_, large_;
  int draft_vocab_;  // of the small head's own matrix; 0: it has none
  LayerInflation layers_;
};

// Rows that are never drawn name tokens that no other row names.
void extend(std::vector<std::int32_t>& ids, int rows, int vocab) {
  std::vector<bool> named(std::size_t(vocab), false);
  for (const std::int32_t id : ids) named[std::size_t(id)] = true;
  for (int id = vocab - 1; id >= 0 && int(ids.size()) < rows; --id)
    if (!named[std::size_t(id)]) ids.push_back(id);
}

// Of the shape, with the kinds of tensors of the head.
ModelConfig shape_of(const json& head, const ModelConfig& small, const ModelInfo& target) {
  const Fields fields(head, "the head " + head.dump());
  const std::string name = fields.string("inflate");
  ModelConfig shape = name.find('/') == name.npos ? published_shape(name) : ModelConfig::load(name);
  if (shape.width != target.width)
    fields.refuse("inflate", "it has " + std::to_string(shape.width) + " features, but the target " + target.name +
                                 " has " + std::to_string(target.width) + "; choose a shape of this width");
  const int layers = fields.integer_or("layers", 0, 256, 0);
  shape.layers = layers > 0 ? layers : small.layers, shape.vocab = target.vocab, shape.tied_head = false;
  shape.head_norms = small.head_norms;
  shape.qkv_bias = small.qkv_bias, shape.out_bias = small.out_bias, shape.mlp_bias = small.mlp_bias;
  return shape;
}

// Of the matrix of logits in the large head. `own`: of the small one, 0 where it uses the target's.
int large_draft_vocab(const json& head, int own, const HeadFiles& files, const ModelInfo& target) {
  const Fields fields(head, "the head " + head.dump());
  const int asked = fields.integer_or("draft_vocab", 0, target.vocab, 0);
  if (own == 0 && asked > 0) fields.refuse("draft_vocab", "the head uses the target's matrix of logits; leave it out");
  if (asked > 0 && asked < own)
    fields.refuse("draft_vocab", "the head has " + std::to_string(own) + "; use as many or more");
  if (own > 0 && files.ids.empty() && asked > 0 && asked != target.vocab)
    fields.refuse("draft_vocab", "the head's matrix of logits has all of the target's tokens; leave it out");
  if (own > 0 && files.ids.empty()) return target.vocab;
  return asked > 0 ? asked : own;
}

}  // namespace

bool is_random_head(const json& head) { return head.is_object() && head.contains("random"); }

std::string directory_of_head(const json& head) { return (head.is_object() ? head.at("directory") : head); }

ModelInfo trained_target(const json& head, const ModelInfo& target) {
  if (is_random_head(head) || is_inflated(head) == target.small.has_value()) {
    ModelInfo trained = target;
    if (!is_inflated(head)) return trained;
    trained.vocab = target.small->vocab, trained.width = target.small->width;
    trained.kv.layers.resize(std::size_t(target.small->layers));
    return trained;
  }
  if (target.small)
    throw Error("the target " + target.name + " is inflated, but the head " + head.dump() +
                " is not; give it as {\"directory\": PATH, \"inflate\": SHAPE}");
  throw Error("the head " + head.dump() + " is inflated, but the target " + target.name +
              " is not; inflate both or neither");
}

void inflate_head(const json& head, const ModelInfo& target, bool wide, HeadFiles& files, HeadForm form) {
  if (!is_inflated(head)) return;
  const SmallModel& trained = *target.small;
  const std::string name = "the head " + files.name, shape = head.at("inflate");
  if (!trained.small_constants)
    throw Error(name + " cannot be inflated: the shape of the target " + target.name +
                " has one matrix for its embedding and its head; choose a target's shape with two, as llama-3.1-8b");
  const int states = form.target_width ? *form.target_width : form.layer.width;
  if (form.layer.width != trained.width || states != trained.width)
    throw Error(name + " has " + std::to_string(form.layer.width) + " features and reads states of " +
                std::to_string(states) + ", but those of the small model of the target " + target.name + " have " +
                std::to_string(trained.width) + "; it belongs to another target");
  ModelConfig small = form.layer;
  small.vocab = trained.vocab, small.tied_head = false;
  ModelConfig large = inflated_config(small, shape_of(head, small, target), name, shape);
  const int own = form.draft_vocab ? *form.draft_vocab : 0;
  const int rows = large_draft_vocab(head, own, files, target);
  if (!files.ids.empty()) extend(files.ids, rows, target.vocab);
  files.drawn = own > 0 ? own : small.vocab;
  if (files.drawn == (own > 0 ? rows : target.vocab)) files.drawn = 0;
  files.name += " inflated to " + shape;
  files.tensors = [tensors = files.tensors, small, large, own, wide] {
    return std::make_shared<InflatedHead>(tensors(), small, large, own, wide);
  };
  form.layer = std::move(large);
  if (form.target_width) *form.target_width = target.width;
  if (form.draft_vocab) *form.draft_vocab = rows;
}

}  // namespace foretoken
