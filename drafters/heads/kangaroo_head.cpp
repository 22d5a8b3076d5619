#include "drafters/heads/kangaroo_head.h"

#include "drafters/heads/head_config.h"
#include "drafters/heads/head_tensors.h"
#include "framework/text/json_file.h"

namespace foretoken {
namespace {

using nlohmann::json;

std::string kangaroo_known_as(const std::string& name) { return name.ends_with("rotary_emb.inv_freq") ? "" : name; }

KangarooFiles random_kangaroo(const Fields& head, const ModelInfo& target) {
  const std::string shape = head.string("random");
  const auto seed = std::uint64_t(head.integer_or("seed", 0, 1 << 30, 1));
  KangarooFiles files;
  files.name = "random " + shape + " adapter seed " + std::to_string(seed);
  files.layer = random_head_layer(shape, target);
  files.tensors = [seed, shape] { return random_head_weights(shape, seed); };
  return files;
}

KangarooFiles trained_kangaroo(const std::string& directory) {
  const auto tensors = std::make_shared<HeadTensors>(directory, kangaroo_known_as);
  if (!tensors->has("layers.0.input_layernorm.weight") || !tensors->has("norm.weight"))
    tensors->refuse("no adapter of an early exit, layers.0.input_layernorm and norm");
  const std::string file = directory + "/config.json";
  const json all = read_json(file);
  const Fields config(all, file);
  KangarooFiles files;
  files.name = directory;
  files.layer = head_layer_config(all, file);
  if (config.has("exit_layer")) files.exit = config.integer("exit_layer", 0, 1 << 12);
  files.tensors = [tensors] { return tensors; };
  files.expect_all_read = [tensors] { tensors->expect_all_read("Kangaroo's adapter"); };
  return files;
}

std::map<std::string, Shape> kangaroo_shapes(const ModelConfig& layer) {
  std::map<std::string, Shape> all = DecoderLayer::tensors(layer, "layers.0.");
  all["norm.weight"] = {layer.width};
  return all;
}

}  // namespace

KangarooFiles open_kangaroo(const json& head, const ModelInfo& target) {
  KangarooFiles files = is_random_head(head) ? random_kangaroo(Fields(head, "the head " + head.dump()), target)
                                             : trained_kangaroo(directory_of_head(head));
  files.layer.layers = 1, files.layer.ffn = 0;  // published files have the target's whole configuration
  return files;
}

KangarooHead::KangarooHead(Backend& backend, const KangarooFiles& files, const Ends& ends, const ModelInfo& target,
                           const std::string& dtype)
    : StateHead(files.layer, ends, target, files.name) {
  expect_width(files.layer.width, target, "the adapter " + files.name);
  const auto tensors = files.tensors();
  const WeightLoader load(backend, kangaroo_shapes(files.layer), *tensors, dtype, "auto");
  layers_.emplace_back(load, files.layer, "layers.0.");
  norm_ = load.vector("norm.weight");
  files.expect_all_read();
  info_.skip = 0;
  count_weights(info_, load, files.layer, layers_);
}

Tensor KangarooHead::stream(Backend& b, const Rows& rows, std::span<const KvLayer> kv) const {
  expect_states(rows);
  layers_[0].attend(b, rows.inputs, rows.layout, kv[0]);
  return rows.inputs;
}

}  // namespace foretoken
