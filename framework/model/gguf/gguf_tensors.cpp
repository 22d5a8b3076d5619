#include "framework/model/gguf/gguf_tensors.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "framework/model/gguf/gguf_cursor.h"
#include "framework/model/gguf/gguf_latent.h"
#include "framework/model/in_parallel.h"
#include "kernels/error.h"
#include "kernels/formats/formats.h"

namespace foretoken {
namespace {

struct Name {
  const char *gguf, *hugging_face;
};
constexpr Name kWhole[] = {{"token_embd.weight", "model.embed_tokens.weight"},
                           {"output.weight", "lm_head.weight"},
                           {"output_norm.weight", "model.norm.weight"}};
// Of a layer: "blk.N." and one of these, then ".weight" or ".bias".
constexpr Name kParts[] = {{"attn_norm", "input_layernorm"},    {"ffn_norm", "post_attention_layernorm"},
                           {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
                           {"attn_v", "self_attn.v_proj"},      {"attn_output", "self_attn.o_proj"},
                           {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"},
                           {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
                           {"ffn_down", "mlp.down_proj"}};

// The same where a norm follows each sublayer.
constexpr Name kPostNormed[] = {{"ffn_norm", "pre_feedforward_layernorm"},
                                {"post_attention_norm", "post_attention_layernorm"},
                                {"post_ffw_norm", "post_feedforward_layernorm"}};

// The same of gpt-oss, whose name for the second norm is that of others for a norm behind attention.
constexpr Name kOfSinks[] = {{"post_attention_norm", "post_attention_layernorm"}};

// The same of fused matrices.
constexpr Name kFused[] = {{"attn_qkv", "self_attn.qkv_proj"}, {"ffn_up", "mlp.gate_up_proj"}};

// The same of a mixture's shared expert; what chooses it is a vector in a file.
constexpr Name kShared[] = {{"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                            {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
                            {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
                            {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"}};

// "blk.N.MIDDLE.weight" (or ".bias") in its parts.
struct NameOfLayer {
  std::string layer, middle, end;
};
std::optional<NameOfLayer> name_of_layer(const std::string& name) {
  if (!name.starts_with("blk.")) return {};
  const std::size_t part = name.find('.', 4), last = name.rfind('.');
  if (part == name.npos || part == 4 || last <= part || name.find_first_not_of("0123456789", 4) != part) return {};
  NameOfLayer n{name.substr(4, part - 4), name.substr(part + 1, last - part - 1), name.substr(last)};
  if (n.end != ".weight" && n.end != ".bias") return {};
  return n;
}

// "": none.
std::string hugging_face_name(const std::string& name, const ModelConfig& config) {
  const std::optional<MixtureConfig>& mixture = config.mixture;
  for (const Name& n : kWhole)
    if (name == n.gguf) return n.hugging_face;
  const std::optional<NameOfLayer> parts = name_of_layer(name);
  if (!parts) return "";
  const std::string layer = "model.layers." + parts->layer + ".";
  for (const Name& n : kPostNormed)
    if (config.post_norms && parts->middle == n.gguf) return layer + n.hugging_face + parts->end;
  for (const Name& n : kOfSinks)
    if (config.sinks && parts->middle == n.gguf) return layer + n.hugging_face + parts->end;
  if (config.sinks && parts->middle == "attn_sinks" && parts->end == ".weight") return layer + "self_attn.sinks";
  for (const Name& n : kFused)
    if (config.fused && parts->middle == n.gguf) return layer + n.hugging_face + parts->end;
  if (config.latent)
    if (const std::string own = latent_name(parts->middle + parts->end); !own.empty()) return layer + own;
  for (const Name& n : kParts)
    if (parts->middle == n.gguf) return layer + n.hugging_face + parts->end;
  if (!mixture || (parts->end != ".weight" && !mixture->biases)) return "";
  if (parts->middle == "ffn_gate_inp") return layer + mixture->module + "." + mixture->router + parts->end;
  for (const Name& n : kShared)
    if (mixture->shared_width > 0 && parts->middle == n.gguf) return layer + n.hugging_face + ".weight";
  return "";
}

// Row `i` of a Hugging Face tensor of so many heads lies in this row of the file, where neighbours are rotated: half s
// and element j of a head is element 2 j + s.
std::int64_t row_in_file(std::int64_t i, std::int64_t rows, int heads) {
  if (heads == 0) return i;
  const std::int64_t size = rows / heads, half = size / 2, in_head = i % size;
  return i - in_head + 2 * (in_head % half) + in_head / half;
}

const WeightFormat& format_of(const GgufType& type) {
  return type.float_codes ? formats::mxfp4()
         : type.bits == 4 ? formats::int4()
         : type.bits == 5 ? formats::int5()
         : type.bits == 6 ? formats::int6()
                          : formats::int8_group();
}

// Unpacks the blocks of one row; whether all scales are finite.
bool unpack_row(const GgufType& type, const char* from, std::int64_t blocks, std::uint8_t* codes,
                const GgufGroups& groups) {
  const auto count = std::size_t(type.groups());
  for (std::size_t b = 0; b < std::size_t(blocks); ++b) {
    const auto part = [&](std::span<float> all) { return all.empty() ? all : all.subspan(b * count, count); };
    type.unpack(reinterpret_cast<const std::uint8_t*>(from) + b * std::size_t(type.bytes),
                codes + b * std::size_t(type.block), {part(groups.scales), part(groups.minima)});
  }
  const auto finite = [](float f) { return std::isfinite(f); };
  return std::ranges::all_of(groups.scales, finite) && std::ranges::all_of(groups.minima, finite);
}

}  // namespace

GgufTensors::GgufTensors(std::shared_ptr<const GgufFile> file, const ModelConfig& config) : file_(std::move(file)) {
  const bool reorder = rotates_neighbours(*file_);
  for (const auto& [own, tensor] : file_->tensors()) {
    if (own == "rope_freqs.weight" || (config.fused && own.starts_with("rope_factors_")))
      continue;  // the configuration has it
    if (config.mixture && add_experts(own, tensor, *config.mixture)) continue;
    const std::string name = hugging_face_name(own, config);
    if (name.empty())
      throw Error(where() + " holds the tensor '" + shown_name(own) + "', which a " + config.architecture +
                  " does not have; this kind of model is not supported");
    Entry e{own, tensor};
    if (const Shape& s = tensor.shape; config.latent && s.rank() == 3) e.tensor.shape = {s[0] * s[1], s[2]};  // by head
    if (tensor.type->bits > 0 && e.tensor.shape.rank() != 2)
      throw Error(where() + ": tensor '" + own + "' is no matrix, but has the type " + tensor.type->name +
                  "; only matrices may be quantized: download it again");
    if (name.ends_with("shared_expert_gate.weight") && tensor.shape.rank() == 1) e.tensor.shape = {1, tensor.shape[0]};
    if (reorder && name.find("self_attn.q_proj.") != name.npos) e.heads = config.heads;
    if (reorder && name.find("self_attn.k_proj.") != name.npos) e.heads = config.kv_heads;
    entries_.emplace(name, std::move(e));
  }
}

bool GgufTensors::add_experts(const std::string& own, const GgufTensor& tensor, const MixtureConfig& mixture) {
  const std::optional<NameOfLayer> parts = name_of_layer(own);
  if (!parts || (parts->end != ".weight" && !mixture.biases)) return false;
  const std::int64_t rank = parts->end == ".weight" ? 3 : 2;
  const std::pair<const char*, std::string> kinds[] = {
      {"ffn_gate_exps", mixture.gate}, {"ffn_up_exps", mixture.up}, {"ffn_down_exps", mixture.down}};
  const auto kind = std::ranges::find_if(kinds, [&](const auto& k) { return parts->middle == k.first; });
  if (kind == std::end(kinds)) return false;
  if (tensor.shape.rank() != rank || tensor.shape[0] != mixture.experts || (rank == 2 && tensor.type->bits > 0))
    throw Error(where() + ": tensor '" + own + "' has the shape " + tensor.shape.text() + " of type " +
                tensor.type->name + ", but must have a " + (rank == 3 ? "matrix" : "dense bias") + " of each of the " +
                std::to_string(mixture.experts) + " experts; download it again");
  const std::uint64_t bytes = tensor.bytes / std::uint64_t(mixture.experts);
  for (int e = 0; e < mixture.experts; ++e) {
    GgufTensor matrix = tensor;
    matrix.shape = rank == 3 ? Shape{tensor.shape[1], tensor.shape[2]} : Shape{tensor.shape[1]};
    matrix.data = tensor.data + std::uint64_t(e) * bytes;
    matrix.bytes = bytes;
    entries_.emplace("model.layers." + parts->layer + "." + mixture.module + ".experts." + std::to_string(e) + "." +
                         kind->second + parts->end,
                     Entry{own, matrix});
  }
  return true;
}

std::vector<const WeightFormat*> GgufTensors::formats() const {
  std::vector<const WeightFormat*> all;
  for (const auto& [name, entry] : entries_) {
    if (entry.tensor.type->bits == 0 || !name.starts_with("model.layers.")) continue;
    const WeightFormat* format = &format_of(*entry.tensor.type);
    if (std::ranges::find(all, format) == all.end()) all.push_back(format);
  }
  return all;
}

std::vector<std::string> GgufTensors::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

const GgufTensors::Entry& GgufTensors::at(const std::string& name, const Shape& expected) const {
  const auto it = entries_.find(name);
  if (it == entries_.end())
    throw Error(where() + " has no tensor for '" + name + "' (it has " + std::to_string(entries_.size()) +
                " tensors); it is incomplete, or its metadata belong to another model: download it again");
  if (it->second.tensor.shape != expected)
    throw Error(where() + ": tensor '" + it->second.own + "' has the shape " + it->second.tensor.shape.text() +
                ", but the metadata require " + expected.text() + "; download it again");
  return it->second;
}

Tensor GgufTensors::tensor(const std::string& name, const Shape& expected) const {
  const Entry& e = at(name, expected);
  if (e.tensor.type->bits == 0) return dense(e);
  const Tensor values = dequantized(quantized(e), by_all_cores).values;
  return values.reshaped(expected);
}

Weight GgufTensors::matrix(const std::string& module, const Shape& expected) const {
  const Entry& e = at(module + ".weight", expected);
  return e.tensor.type->bits == 0 ? Weight::dense(dense(e)) : quantized(e);
}

Tensor GgufTensors::dense(const Entry& e) const {
  const GgufTensor& t = e.tensor;
  const Tensor view(file_->mapping(), t.data, t.shape, t.type->dense);
  if (e.heads == 0) return view;
  const Tensor ordered = Tensor::host(t.shape, t.type->dense);
  const std::int64_t rows = t.shape[0];
  const std::uint64_t bytes = t.bytes / std::uint64_t(rows);
  for (std::int64_t i = 0; i < rows; ++i)
    std::memcpy(static_cast<char*>(ordered.raw()) + std::uint64_t(i) * bytes,
                t.data + std::uint64_t(row_in_file(i, rows, e.heads)) * bytes, bytes);
  return ordered;
}

// Rows move whole, so that a quantized row that is reordered keeps its blocks.
Weight GgufTensors::quantized(const Entry& e) const {
  const GgufTensor& t = e.tensor;
  const GgufType& type = *t.type;
  Weight w;
  w.in = t.shape[t.shape.rank() - 1], w.out = t.shape.elements() / w.in;
  w.format = &format_of(type), w.group = type.group;
  w.values = Tensor::host({w.out, w.in}, DType::u8);
  const Shape scales{w.out, w.in / type.group};
  w.scales = Tensor::host(scales, DType::f32);
  if (type.minima) {
    w.minima = Tensor::host(scales, DType::f32), w.zeros = Tensor::host(scales, DType::f32);
    std::ranges::fill(w.zeros.values<float>(), float(type.offset - (1 << (type.bits - 1))));
  }
  const std::int64_t blocks = w.in / type.block;
  const std::uint64_t bytes = std::uint64_t(blocks) * std::uint64_t(type.bytes);
  std::atomic<bool> finite = true;
  in_parallel(w.out, w.in, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto row = [&](const Tensor& all) {
        return all ? std::span(all.row<float>(i), std::size_t(scales[1])) : std::span<float>();
      };
      const char* from = t.data + std::uint64_t(row_in_file(i, w.out, e.heads)) * bytes;
      if (!unpack_row(type, from, blocks, w.values.row<std::uint8_t>(i), {row(w.scales), row(w.minima)}))
        finite = false;
    }
  });
  if (!finite)
    throw Error(where() + " is damaged: tensor '" + e.own +
                "' has a scale that is no finite number; download it again");
  return w;
}

}  // namespace foretoken
