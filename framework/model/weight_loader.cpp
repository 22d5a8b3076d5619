#include "framework/model/weight_loader.h"

#include <algorithm>
#include <array>
#include <span>

#include "framework/model/convert.h"
#include "framework/model/in_parallel.h"
#include "framework/text/known_names.h"
#include "kernels/error.h"
#include "kernels/formats/activations/activation_format.h"
#include "kernels/out_of_memory.h"

namespace foretoken {
namespace {

void expect_type(const std::string& key, const std::string& type) {
  const std::vector<std::string> known = weight_types();
  if (std::ranges::find(known, type) == known.end())
    throw Error("unknown " + key + " '" + type + "'; known: " + listed(known));
}

// bf16 where the tensor has it, else f32, unless `dtype` requests one of them.
DType dense_type(const Tensor& t, const std::string& dtype) {
  if (dtype == "f32") return DType::f32;
  if (dtype == "bf16") return DType::bf16;
  return t.dtype() == DType::bf16 ? DType::bf16 : DType::f32;
}

Weight rounded(const Weight& stored, const Precision& precision, DType scales) {
  if (!stored.format) {
    const Tensor values = converted(stored.values, dense_type(stored.values, "auto"));
    return quantize(Weight::dense(values), precision, by_all_cores, scales);
  }
  if (stored.format != precision.weights)
    throw Error("it is stored as " + stored.format->name() + ", which is not rounded to " + precision.weights->name() +
                "; choose auto, " + stored.format->name() + ", bf16 or f32");
  return precision.activations ? with_activations(stored, *precision.activations) : stored;
}

// Dense matrices.
Weight one_above_the_other(const std::vector<Weight>& parts, const std::string& dtype) {
  std::int64_t out = 0;
  DType type = DType::bf16;
  for (const Weight& p : parts) {
    if (dense_type(p.values, dtype) != DType::bf16) type = DType::f32;
    out += p.out;
  }
  Weight all = parts[0];
  all.values = parts.size() == 1 ? converted(parts[0].values, type) : Tensor::host({out, all.in}, type);
  all.out = out;
  if (parts.size() == 1) return all;
  std::int64_t at = 0;
  for (const Weight& p : parts) {
    convert(p.values, all.values.rows(at, p.out));
    at += p.out;
  }
  return all;
}

}  // namespace

std::vector<std::string> weight_types() {
  std::vector<std::string> types{"auto", "f32", "bf16"};
  for (const Precision& p : precisions()) types.push_back(p.name);
  return types;
}

std::int64_t Products::bytes() const {
  std::int64_t all = 0;
  for (const Weight& w : parts) all += w.bytes();
  return all;
}

Tensor Products::of(Backend& b, const Tensor& x) const {
  if (parts.size() == 1) return b.linear(x, parts.front());
  std::int64_t out = 0, at = 0;
  for (const Weight& w : parts) out += w.out;
  const Tensor y = b.allocate({x.dim(0), out}, DType::f32);
  for (const Weight& w : parts) b.linear_to(y.columns(at, w.out), x, w), at += w.out;
  return y;
}

Tensor Products::after_norm(Backend& b, const Tensor& x, const Tensor& gain, float epsilon) const {
  if (parts.size() == 1) return b.norm_linear(x, gain, epsilon, parts.front());
  std::int64_t out = 0, at = 0;
  for (const Weight& w : parts) out += w.out;
  const Tensor y = b.allocate({x.dim(0), out}, type);
  for (const Weight& w : parts) {
    b.norm_linear_to(y.columns(at, w.out), x, gain, epsilon, w);
    at += w.out;
  }
  return y;
}

WeightLoader::WeightLoader(Backend& backend, std::map<std::string, Shape> shapes, const TensorSource& tensors,
                           std::string dtype, std::string head_dtype)
    : backend_(backend),
      shapes_(std::move(shapes)),
      tensors_(tensors),
      dtype_(std::move(dtype)),
      head_dtype_(std::move(head_dtype)) {
  expect_type("dtype", dtype_);
  expect_type("head_dtype", head_dtype_);
}

Tensor WeightLoader::vector(const std::string& name) const {
  return backend_.upload(converted(tensors_.tensor(name, shapes_.at(name)), DType::f32));
}

Products WeightLoader::products(const std::vector<std::string>& names) const {
  Products all{stacked(names, dtype_)};
  if (all.parts.size() > 1) all.type = type_of(all.parts);
  return all;
}

Weight WeightLoader::one(const std::string& name) const { return stacked({name}, dtype_).front(); }

Weight WeightLoader::unrounded(const std::string& name) const {
  return stacked({name}, find_precision(dtype_) ? "auto" : dtype_).front();
}

Tensor WeightLoader::numbers(const std::string& name) const {
  const Weight stored = tensors_.matrix(name, shapes_.at(name + ".weight"));
  const Tensor values = in_input_order(stored.format ? dequantized(stored, by_all_cores) : stored).values;
  return converted(values, dense_type(values, dtype_));
}

ExpertWeights WeightLoader::experts(const std::vector<std::vector<std::string>>& names) const {
  std::vector<Weight> all;
  for (const std::vector<std::string>& expert : names) {
    std::vector<Weight> parts = stacked(expert, dtype_);
    if (parts.size() > 1)
      throw Error(
          tensors_.where() + ": '" + expert.front() + "' and '" + expert.back() +
          "' are stored in different formats or with different scales of their inputs, which is not supported for "
          "experts; set dtype to bf16");
    all.push_back(std::move(parts.front()));
  }
  const auto bytes = [&] {
    std::int64_t sum = 0;
    for (const Weight& w : all) sum += w.bytes();
    return sum;
  };
  bytes_ -= bytes();
  try {
    ExpertWeights experts = backend_.group_experts(std::move(all));
    bytes_ += experts.bytes();
    return experts;
  } catch (const OutOfMemory&) {
    throw;  // who catches it has a remedy
  } catch (const Error& e) {
    throw Error(tensors_.where() + ": '" + names.front().front() + "' and those of the other experts: " + e.what());
  }
}

std::pair<Weight, Weight> WeightLoader::ends(const std::string& table, const std::string& head) const {
  const std::string type = head_type();
  if (!head.empty())
    return {uploaded(tensors_.tensor(table + ".weight", shapes_.at(table + ".weight"))), stacked({head}, type).front()};
  const Weight stored = matrix(table, type);
  const auto biased = [&](Weight w) {
    if (has("lm_head.bias")) w.bias = biases(std::array{std::string("lm_head")}, w.out);
    return w;
  };
  if (stored.format) {
    const Weight codes = prepared(biased(stored));
    return {codes, codes};
  }
  const Weight embedding = uploaded(in_input_order(stored).values);
  const bool same = dense_type(stored.values, type) == embedding.values.dtype();
  return {embedding, prepared(biased(same ? embedding : one_above_the_other({stored}, type)))};
}

std::int64_t table_bytes(const Weight& embedding, const Weight& head) {
  if (!embedding.values || embedding.values.raw() == head.values.raw()) return 0;
  const auto* const matrix = dynamic_cast<const PreparedMatrix*>(head.prepared.get());
  return matrix && matrix->matrix.raw() == embedding.values.raw() ? 0 : embedding.values.bytes();
}

// Of products that stand side by side: what the device gives; f32 where one of them is.
DType WeightLoader::type_of(const std::vector<Weight>& parts) const {
  const auto is_wide = [&](const Weight& w) { return backend_.activation_type(w) == DType::f32; };
  return std::ranges::any_of(parts, is_wide) ? DType::f32 : DType::bf16;
}

std::string WeightLoader::head_type() const {
  const bool as_layers = head_dtype_ == "auto" && !find_precision(dtype_);
  return as_layers ? dtype_ : head_dtype_;
}

// A table, on the device.
Weight WeightLoader::uploaded(const Tensor& t) const {
  return Weight::dense(backend_.upload(converted(t, dense_type(t, dtype_))));
}

Weight WeightLoader::prepared(Weight w) const {
  w = backend_.prepare(std::move(w));
  bytes_ += w.bytes();
  return w;
}

std::vector<Weight> WeightLoader::stacked(const std::vector<std::string>& names, const std::string& type) const {
  std::vector<Weight> stored, all;
  for (const std::string& name : names) stored.push_back(tensors_.matrix(name, shapes_.at(name + ".weight")));
  for (std::size_t begin = 0, end = 0; begin < names.size(); begin = end) {
    for (end = begin + 1; end < names.size() && stackable(std::span(stored).subspan(begin, end + 1 - begin));) ++end;
    std::vector<Weight> run;
    for (std::size_t i = begin; i < end; ++i) run.push_back(loaded(names[i], stored[i], type));
    Weight w = run.front().format ? foretoken::stacked(run) : one_above_the_other(run, type);
    if (has(names[begin] + ".bias")) w.bias = biases(std::span(names).subspan(begin, end - begin), w.out);
    all.push_back(prepared(std::move(w)));
  }
  return all;
}

Weight WeightLoader::matrix(const std::string& name, const std::string& type) const {
  return loaded(name, tensors_.matrix(name, shapes_.at(name + ".weight")), type);
}

// As stored, or rounded to the format `type`, or dequantized to the dense type. A format with rounded inputs rounds
// those of stored codes too. Codes of another format are not rounded anew.
Weight WeightLoader::loaded(const std::string& name, const Weight& stored, const std::string& type) const {
  const Precision* precision = find_precision(type);
  if (stored.format && type != "auto" && !precision) return dequantized(stored, by_all_cores);
  if (!precision) return stored;
  try {
    return rounded(stored, *precision, tensors_.scales());
  } catch (const Error& e) {
    throw Error(tensors_.where() + ": dtype '" + type + "' and the matrix '" + name + "': " + e.what());
  }
}

Tensor WeightLoader::biases(std::span<const std::string> names, std::int64_t out) const {
  const Tensor all = Tensor::host({out}, DType::f32);
  std::int64_t at = 0;
  for (const std::string& name : names) {
    const Tensor b = tensors_.tensor(name + ".bias", shapes_.at(name + ".bias"));
    convert(b, all.rows(at, b.dim(0)));
    at += b.dim(0);
  }
  return all;  // Backend::prepare brings it to the device
}

}  // namespace foretoken
