#include "framework/model/division.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "framework/model/convert.h"
#include "framework/model/decoder_layer.h"
#include "framework/model/in_parallel.h"
#include "framework/model/model_tensors.h"
#include "kernels/error.h"
#include "kernels/formats/activations/activation_format.h"

namespace foretoken {
namespace {

struct Piece {
  std::int64_t begin = 0, count = 0;
};

// Which rows or columns of a matrix a rank has.
struct Cut {
  bool outputs = true;     // else inputs, of which there is one piece
  std::int64_t whole = 0;  // of the undivided matrix
  std::vector<Piece> pieces = {};
};

// The share of one of `parts` in blocks of these sizes, one below the other.
Cut cut_into(bool outputs, std::initializer_list<std::int64_t> blocks, int part, int parts) {
  Cut cut{.outputs = outputs};
  for (const std::int64_t size : blocks) {
    cut.pieces.push_back({cut.whole + size / parts * part, size / parts});
    cut.whole += size;
  }
  return cut;
}

Tensor rows_of(const Tensor& t, const std::vector<Piece>& pieces) {
  if (!t) return {};
  if (pieces.size() == 1) return t.rows(pieces[0].begin, pieces[0].count);
  std::int64_t n = 0;
  for (const Piece& p : pieces) n += p.count;
  const Tensor all = Tensor::host(t.shape().with_rows(n), t.dtype());
  std::int64_t at = 0;
  for (const Piece& p : pieces) {
    const Tensor from = t.rows(p.begin, p.count);
    std::memcpy(all.rows(at, p.count).raw(), from.raw(), std::size_t(from.bytes()));
    at += p.count;
  }
  return all;
}

Tensor columns_of(const Tensor& t, std::int64_t begin, std::int64_t count) {
  if (!t) return {};
  const std::int64_t size = size_of(t.dtype());
  const Tensor all = Tensor::host({t.dim(0), count}, t.dtype());
  for (std::int64_t r = 0; r < t.dim(0); ++r)
    std::memcpy(all.row<char>(0) + r * count * size, t.data<char>() + (r * t.row_stride() + begin) * size,
                std::size_t(count * size));
  return all;
}

// The inputs that share a scale in a piece of `count` of a matrix's inputs; 0 where the piece would cut a group, which
// a scale for all inputs is not.
std::int64_t group_in(std::int64_t group, std::int64_t inputs, std::int64_t count) {
  if (group == inputs) return count;
  return count % group == 0 ? group : 0;
}

[[noreturn]] void refuse_groups(std::int64_t group, std::int64_t count, const std::string& where) {
  throw Error(where + ": each rank has " + std::to_string(count) +
              " inputs of a matrix, which are no whole groups of the " + std::to_string(group) +
              " that share a scale; lower \"tensor\" of \"parallel\", or set dtype to bf16");
}

Weight inputs_of(const Weight& w, const Piece& p, const std::string& where) {
  if (w.order)
    throw Error(where +
                ": the inputs of a matrix are in an order of their own (desc_act), which is not divided among ranks; "
                "set dtype to bf16, or leave out \"parallel\"");
  Weight part = w;
  part.in = p.count;
  if (!w.format) {
    part.values = columns_of(w.values, p.begin, p.count);
    return part;
  }
  part.group = int(group_in(w.group, w.in, p.count));
  if (part.group == 0 || (w.kept && p.count % 8 != 0)) refuse_groups(w.kept ? 8 : w.group, p.count, where);
  if (w.kept) {
    part.values = columns_of(w.values, p.begin / 2, p.count / 2);
    part.kept = columns_of(w.kept, p.begin / 8, p.count / 8);
    return part;
  }
  part.values = columns_of(w.values, p.begin, p.count);
  for (Tensor Weight::* const scales : {&Weight::scales, &Weight::zeros, &Weight::minima})
    part.*scales = columns_of(w.*scales, p.begin / w.group, p.count / part.group);
  return part;
}

Weight outputs_of(const Weight& w, const std::vector<Piece>& pieces) {
  Weight part = w;
  for (Tensor Weight::* const of : {&Weight::values, &Weight::kept, &Weight::scales, &Weight::zeros, &Weight::minima})
    part.*of = rows_of(w.*of, pieces);
  part.out = part.values.dim(0);
  return part;
}

class RankTensors : public TensorSource {
 public:
  RankTensors(const OpenModel& whole, const Division& d)
      : config_(whole.config),
        tensors_(whole.tensors),
        precision_(find_precision(whole.dtype)),
        dense_(whole.dtype == "bf16" || whole.dtype == "f32"),
        rank_(d.rank.number),
        ranks_(d.rank.size()),
        expert_(d.expert) {}

  Tensor tensor(const std::string& name, const Shape& expected) const override {
    const std::string bias = ".bias";
    const auto cut = name.ends_with(bias) ? cut_of(name.substr(0, name.size() - bias.size())) : std::nullopt;
    if (!cut) return tensors_->tensor(name, expected);
    if (cut->outputs) return rows_of(tensors_->tensor(name, expected.with_rows(cut->whole)), cut->pieces);
    if (rank_ == 0) return tensors_->tensor(name, expected);  // added once
    const Tensor none = Tensor::host(expected, DType::f32);
    std::ranges::fill(none.values<float>(), 0.0f);
    return none;
  }
  Weight matrix(const std::string& module, const Shape& expected) const override {
    const auto cut = cut_of(module);
    if (!cut) return tensors_->matrix(module, expected);
    const Shape whole = cut->outputs ? expected.with_rows(cut->whole) : Shape{expected[0], cut->whole};
    const Weight w = tensors_->matrix(module, whole);
    return cut->outputs ? outputs_of(rounded(w), cut->pieces)
                        : inputs_of(dense(rounded(w)), cut->pieces[0], where() + ": '" + module + "'");
  }
  std::vector<const WeightFormat*> formats() const override { return tensors_->formats(); }
  DType scales() const override { return tensors_->scales(); }
  std::vector<std::string> names() const override {
    std::vector<std::string> all = tensors_->names();
    if (expert_ > 1) std::erase_if(all, [this](const std::string& name) { return is_elsewhere(name); });
    return all;
  }
  std::string where() const override { return tensors_->where(); }

  // Throws Error where a matrix of the first layer cannot be cut. Of a stored one the scales are looked at.
  void expect_whole_groups() const {
    const ModelConfig layer = config_.of_layer(0);
    for (const auto& [name, shape] : DecoderLayer::tensors(layer, layer_prefix(0))) {
      const std::string weight = ".weight";
      if (!name.ends_with(weight)) continue;
      const std::string module = name.substr(0, name.size() - weight.size());
      const auto cut = cut_of(module);
      if (!cut || cut->outputs || is_elsewhere(name)) continue;
      const std::int64_t count = cut->pieces[0].count;
      if (dense_) continue;
      if (!formats().empty())
        (void)inputs_of(tensors_->matrix(module, shape), cut->pieces[0], where() + ": '" + module + "'");
      else if (precision_)
        if (const Block block = precision_->weights->block(shape[0], shape[1]);
            block.inputs > 0 && group_in(block.inputs, shape[1], count) == 0)
          refuse_groups(block.inputs, count, where() + ": '" + module + "'");
    }
  }

 private:
  std::optional<Cut> cut_of(const std::string& module) const {
    const ModelConfig& c = config_;
    const std::string last = module.substr(module.rfind('.') + 1);
    const auto is = [&](const std::string& name) { return last == name; };
    const std::int64_t q = std::int64_t(c.heads) * c.head_size, kv = std::int64_t(c.kv_heads) * c.head_size;
    if (is("q_proj")) return cut_into(true, {q}, rank_, ranks_);
    if (is("k_proj") || is("v_proj")) return cut_into(true, {kv}, rank_, ranks_);
    if (is("qkv_proj")) return cut_into(true, {q, kv, kv}, rank_, ranks_);
    if (is("o_proj")) return cut_into(false, {q}, rank_, ranks_);
    if (c.mixture && module.find(".experts.") != std::string::npos) {
      const int parts = ranks_ / expert_, part = rank_ % parts;
      if (parts == 1) return std::nullopt;
      if (is(c.mixture->gate) || is(c.mixture->up)) return cut_into(true, {c.mixture->width}, part, parts);
      if (is(c.mixture->down)) return cut_into(false, {c.mixture->width}, part, parts);
    }
    const bool shared = module.find(".shared_expert") != std::string::npos;
    const std::int64_t hidden = shared ? c.mixture->shared_width : c.ffn;
    if (is("gate_proj") || is("up_proj")) return cut_into(true, {hidden}, rank_, ranks_);
    if (is("gate_up_proj")) return cut_into(true, {hidden, hidden}, rank_, ranks_);
    if (is("down_proj")) return cut_into(false, {hidden}, rank_, ranks_);
    return std::nullopt;
  }
  Weight rounded(const Weight& stored) const {
    if (!precision_ || stored.format) return stored;
    const DType type = stored.values.dtype() == DType::bf16 ? DType::bf16 : DType::f32;
    return quantize(Weight::dense(converted(stored.values, type)), *precision_, by_all_cores, scales());
  }
  // Codes that are loaded as dense numbers are so before they are cut, since a cut of those is always possible.
  Weight dense(const Weight& w) const { return w.format && dense_ ? in_input_order(dequantized(w, by_all_cores)) : w; }
  // Whether the tensor is of an expert that other ranks have.
  bool is_elsewhere(const std::string& name) const {
    const std::string experts = ".experts.";
    const std::size_t at = name.find(experts);
    if (!config_.mixture || at == std::string::npos) return false;
    const int held = config_.mixture->experts / expert_;
    return std::atoi(name.c_str() + at + experts.size()) / held != rank_ / (ranks_ / expert_);
  }

  ModelConfig config_;  // of the whole model
  std::shared_ptr<const TensorSource> tensors_;
  const Precision* precision_;  // to which matrices are rounded when they are loaded; null: they are not
  bool dense_;                  // they become dense where they are stored in codes
  int rank_, ranks_, expert_;
};

// Divides `size`, or throws Error.
void divide(int& size, const std::string& what, int parts, const std::string& where, const char* key) {
  if (size % parts != 0)
    throw Error(where + ": the model has " + std::to_string(size) + " " + what + ", which do not divide by " +
                std::to_string(parts) + "; set \"" + key + "\" of \"parallel\" to a number that divides them");
  size /= parts;
}

// Of what a config may ask, what one rank cannot compute of its part alone.
void expect_divisible(const ModelConfig& c, const Division& d, const std::string& where) {
  const auto refuse = [&](const std::string& what) {
    throw Error(where + ": the model has " + what + ", which is not divided among ranks; leave out \"parallel\"");
  };
  if (c.latent) refuse("latent attention");
  if (c.joint_norms) refuse("one norm of all heads");
  if (c.sinks) refuse("sinks in attention");
  if (c.mixture && c.mixture->biases && d.rank.size() > d.expert)
    refuse("biases of experts, of which each rank would have a part");
}

}  // namespace

OpenModel divided(OpenModel model, const Division& d) {
  const int ranks = d.rank.size();
  const std::string where = model.tensors->where();
  ModelConfig c = model.config;
  expect_divisible(c, d, where);
  divide(c.heads, "attention heads", ranks, where, "tensor");
  divide(c.kv_heads, "heads of keys and values", ranks, where, "tensor");
  if (!c.mixture || !c.mixture->dense_layers.empty()) divide(c.ffn, "hidden units", ranks, where, "tensor");
  if (d.expert > 1 && !c.mixture)
    throw Error(where + ": the model has no experts that could be divided; set \"expert\" of \"parallel\" to 1");
  if (ranks % d.expert != 0)
    throw Error("\"expert\" of \"parallel\" is " + std::to_string(d.expert) +
                ", which does not divide its \"tensor\", " + std::to_string(ranks) +
                "; each group of experts has as many ranks");
  if (c.mixture) {
    MixtureConfig& m = *c.mixture;
    m.held = m.experts;
    divide(m.held, "experts", d.expert, where, "expert");
    m.first = d.rank.number / (ranks / d.expert) * m.held;
    divide(m.width, "hidden units of an expert", ranks / d.expert, where, "tensor");
    divide(m.shared_width, "hidden units of the shared expert", ranks, where, "tensor");
  }
  c.rank = std::make_shared<const Rank>(d.rank);
  auto tensors = std::make_shared<RankTensors>(model, d);
  tensors->expect_whole_groups();
  model.config = std::move(c), model.tensors = std::move(tensors);
  return model;
}

}  // namespace foretoken
