#include "framework/model/latent_attention.h"

#include "framework/model/convert.h"

namespace foretoken {
namespace {

// As in Transformers, whatever rms_norm_eps is.
constexpr float kInnerEpsilon = 1e-6f;

template <class T> void transpose(const Tensor& from, Tensor to) {
  for (std::int64_t r = 0; r < from.dim(0); ++r)
    for (std::int64_t c = 0; c < from.dim(1); ++c) to.row<T>(c)[r] = from.row<T>(r)[c];
}

Tensor transposed(const Tensor& m) {
  const Tensor t = Tensor::host({m.dim(1), m.dim(0)}, m.dtype());
  m.dtype() == DType::bf16 ? transpose<bf16>(m, t) : transpose<float>(m, t);
  return t;
}

}  // namespace

KvShape kept_latents(const ModelConfig& c, DType dtype) {
  KvShape kv(c.layers, 1, c.latent->kept(), dtype);
  for (LayerShape& l : kv.layers) l.latent = c.latent->rank;
  return kv;
}

std::map<std::string, Shape> LatentAttention::tensors(const ModelConfig& c, const std::string& prefix) {
  const LatentConfig& l = *c.latent;
  const std::string a = prefix + "self_attn.";
  const std::int64_t q = std::int64_t(c.heads) * c.head_size, heads = c.heads;
  std::map<std::string, Shape> all{{a + "kv_a_proj_with_mqa.weight", {l.kept(), c.width}},
                                   {a + "kv_a_layernorm.weight", {l.rank}}};
  if (l.query_rank > 0) {
    all[a + "q_a_proj.weight"] = {l.query_rank, c.width};
    all[a + "q_a_layernorm.weight"] = {l.query_rank};
    all[a + "q_b_proj.weight"] = {q, l.query_rank};
  } else {
    all[a + "q_proj.weight"] = {q, c.width};
  }
  if (l.split) {
    all[a + "k_b_proj.weight"] = {heads * l.rank, l.plain};
    all[a + "v_b_proj.weight"] = {heads * l.value, l.rank};
  } else {
    all[a + "kv_b_proj.weight"] = {heads * (l.plain + l.value), l.rank};
  }
  return all;
}

LatentAttention::LatentAttention(const WeightLoader& load, const ModelConfig& c, const std::string& prefix)
    : latent_(*c.latent), heads_(c.heads) {
  const LatentConfig& l = latent_;
  const std::string a = prefix + "self_attn.";
  from_input_ = load.products({a + (l.query_rank > 0 ? "q_a_proj" : "q_proj"), a + "kv_a_proj_with_mqa"});
  query_norm_ = load.vector_if(a + "q_a_layernorm.weight"), latent_norm_ = load.vector(a + "kv_a_layernorm.weight");
  if (l.query_rank > 0) queries_ = load.one(a + "q_b_proj");
  const auto add = [&](const Tensor& key, const Tensor& value) {
    keys_.push_back(load.made(key)), values_.push_back(load.made(value));
  };
  if (l.split) {
    const Tensor k = load.numbers(a + "k_b_proj"), v = load.numbers(a + "v_b_proj");
    for (int h = 0; h < heads_; ++h)
      add(k.rows(std::int64_t(h) * l.rank, l.rank), v.rows(std::int64_t(h) * l.value, l.value));
    return;
  }
  const Tensor both = load.numbers(a + "kv_b_proj");
  for (int h = 0; h < heads_; ++h) {
    const Tensor own = both.rows(std::int64_t(h) * (l.plain + l.value), l.plain + l.value);
    add(transposed(own.rows(0, l.plain)), own.rows(l.plain, l.value));
  }
}

LatentAttention::Projected LatentAttention::project(Backend& b, const Tensor& x, const Tensor& gain,
                                                    float epsilon) const {
  const LatentConfig& l = latent_;
  const std::int64_t rows = x.dim(0), size = l.plain + l.rotated, kept = l.kept(), heads = heads_;
  const Tensor from_x = from_input_.after_norm(b, x, gain, epsilon);
  const std::int64_t queries = from_x.dim(1) - kept;
  Tensor own = from_x.columns(0, queries);  // [rows, heads (plain + rotated)]
  if (queries_) own = b.norm_linear(own, query_norm_, kInnerEpsilon, queries_);
  const Tensor q = b.allocate({rows, heads * kept}, DType::f32), k = b.allocate({rows, kept}, DType::f32);
  for (std::int64_t h = 0; h < heads; ++h) {
    b.copy(own.columns(h * size + l.plain, l.rotated), q.columns(h * kept, l.rotated));
    b.linear_to(q.columns(h * kept + l.rotated, l.rank), own.columns(h * size, l.plain), keys_[std::size_t(h)]);
  }
  b.copy(from_x.columns(queries + l.rank, l.rotated), k.columns(0, l.rotated));
  b.copy(b.rms_norm(from_x.columns(queries, l.rank), latent_norm_, kInnerEpsilon), k.columns(l.rotated, l.rank));
  return {q, k};
}

Tensor LatentAttention::values_of(Backend& b, const Tensor& attended) const {
  const LatentConfig& l = latent_;
  const Tensor y = b.allocate({attended.dim(0), std::int64_t(heads_) * l.value}, DType::f32);
  for (std::int64_t h = 0; h < heads_; ++h)
    b.linear_to(y.columns(h * l.value, l.value), attended.columns(h * l.rank, l.rank), values_[std::size_t(h)]);
  return y;
}

std::int64_t LatentAttention::bytes() const {
  std::int64_t all = from_input_.bytes() + (queries_ ? queries_.bytes() : 0);
  for (const std::vector<Weight>& matrices : {keys_, values_})
    for (const Weight& w : matrices) all += w.bytes();
  return all;
}

}  // namespace foretoken
