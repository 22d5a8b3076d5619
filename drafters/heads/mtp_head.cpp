#include "drafters/heads/mtp_head.h"

#include <array>
#include <filesystem>

#include "drafters/heads/eagle_files.h"
#include "drafters/heads/head_tensors.h"
#include "framework/model/model_files.h"
#include "framework/model/unit_offset.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;

// How one publisher names the parts of a module; `rest` of the layer keeps its names.
struct MtpNames {
  std::string prefix;  // of the module
  const char *fc, *embedding_norm, *state_norm, *norm;
  std::string layer;  // prefix of its decoder layer
  bool state_first = false;
  bool unit_offset = false;  // norms store their gain less 1
};

std::vector<MtpNames> all_names(int layers) {
  const std::string last = "model.layers." + std::to_string(layers) + ".";
  return {{"model.mtp_layers.0.", "input_proj", "token_layernorm", "hidden_layernorm", "final_layernorm",
           "model.mtp_layers.0.", true},
          {"mtp.", "fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", "mtp.layers.0.", false, true},
          {last, "eh_proj", "enorm", "hnorm", "shared_head.norm", last}};
}

std::string mtp_known_as(const MtpNames& names, const std::string& name) {
  for (const auto& [there, here] : {std::pair(names.fc, "fc"), std::pair(names.embedding_norm, "embedding_norm"),
                                    std::pair(names.state_norm, "state_norm"), std::pair(names.norm, "norm")})
    if (name == names.prefix + there + ".weight") return here + std::string(".weight");
  if (!name.starts_with(names.layer)) return "";
  const std::string rest = name.substr(names.layer.size());
  for (const char* part : {"self_attn.", "mlp.", "input_layernorm.", "post_attention_layernorm."})
    if (rest.starts_with(part)) return "layers.0." + rest;
  return "";  // copies of the target's embedding and head
}

// The target's own configuration, of one layer, with the family's defaults of Qwen2 where it is MiMo.
ModelConfig mtp_layer(const std::filesystem::path& directory) {
  json config = read_json(directory / "config.json");
  const auto& named = config.contains("architectures") ? config["architectures"] : json::array();
  if (named == json::array({"MiMoForCausalLM"})) config["architectures"] = {"Qwen2ForCausalLM"};
  ModelConfig layer = ModelConfig::parse(config.dump(), (directory / "config.json").string());
  layer.layers = 1;
  if (layer.mixture) layer.mixture->dense_layers.clear();
  return layer;
}

std::map<std::string, Shape> mtp_shapes(const ModelConfig& c) {
  std::map<std::string, Shape> all = DecoderLayer::tensors(c, "layers.0.");
  for (const char* norm : {"embedding_norm.weight", "state_norm.weight", "norm.weight"}) all[norm] = {c.width};
  for (const char* part : {"fc.part0.weight", "fc.part1.weight"}) all[part] = {c.width, c.width};
  return all;
}

MtpFiles trained_mtp(const std::filesystem::path& directory, const ModelInfo& target) {
  MtpFiles files;
  files.name = directory.string(), files.layer = mtp_layer(directory);
  std::shared_ptr<const TensorSource> quantized;
  if (files.layer.quantization) quantized = ModelFiles::open(directory)->tensors();
  for (const MtpNames& names : all_names(int(target.kv.layers.size()))) {
    const auto tensors = std::make_shared<HeadTensors>(
        directory, [&](const std::string& name) { return mtp_known_as(names, name); }, quantized);
    if (!tensors->has("fc.weight")) continue;
    std::shared_ptr<const TensorSource> source = tensors;
    if (names.unit_offset) source = std::make_shared<UnitOffset>(tensors);
    files.state_first = names.state_first, files.tensors = [source] { return source; };
    return files;
  }
  throw Error(directory.string() +
              " has no module for multi-token prediction: neither model.mtp_layers.0.input_proj, mtp.fc nor "
              "model.layers." +
              std::to_string(target.kv.layers.size()) + ".eh_proj; choose a checkpoint that has one");
}

}  // namespace

MtpFiles open_mtp(const json& head, const ModelInfo& target, bool wide) {
  MtpFiles files;
  if (is_random_head(head)) {
    const EagleFiles random = open_eagle(head, 1, target);
    files.name = random.name, files.layer = random.form.layer, files.tensors = random.tensors;
    return files;
  }
  files = trained_mtp(directory_of_head(head), trained_target(head, target));
  inflate_head(head, target, wide, files, {files.layer});
  return files;
}

MtpHead::MtpHead(Backend& backend, const MtpFiles& files, const Ends& ends, const ModelInfo& target,
                 const std::string& dtype)
    : StateHead(files.layer, ends, target, files.name) {
  expect_width(files.layer.width, target, "the module " + files.name);
  const auto tensors = files.tensors();
  const WeightLoader load(backend, mtp_shapes(files.layer), *tensors, dtype, "auto");
  const std::array parts{std::string("fc.part0"), std::string("fc.part1")};
  of_embedding_ = load.one(parts[files.state_first]), of_state_ = load.one(parts[!files.state_first]);
  embedding_norm_ = load.vector("embedding_norm.weight"), state_norm_ = load.vector("state_norm.weight");
  norm_ = load.vector("norm.weight"), norm_output_ = true;
  layers_.emplace_back(load, files.layer, "layers.0.");
  draw_only(backend, files.drawn);
  count_weights(info_, load, files.layer, layers_);
}

Tensor MtpHead::stream(Backend& b, const Rows& rows, std::span<const KvLayer> kv) const {
  expect_states(rows);
  const Tensor x = b.linear(b.rms_norm(embedded(b, rows), embedding_norm_, epsilon_), of_embedding_);
  b.linear_add(x, b.rms_norm(rows.inputs, state_norm_, epsilon_), of_state_);
  layers_[0].forward(b, x, rows.layout, kv[0]);
  return x;
}

}  // namespace foretoken
