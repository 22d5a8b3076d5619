#include "framework/model/stacked_experts.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "framework/model/convert.h"
#include "framework/model/in_parallel.h"
#include "framework/model/quantized/microscaling.h"
#include "kernels/error.h"
#include "kernels/formats/format.h"

namespace foretoken {
namespace {

constexpr const char* kExperts = ".experts.";

// Where the numbers of one matrix of one expert are among those of all experts.
struct ExpertPlace {
  std::string module;    // "model.layers.3.mlp.experts"
  std::string stack;     // "gate_up_proj"
  std::int64_t expert;   // of the tensor
  int first, step, out;  // outputs first, first + step, ... of `out` times as many as the matrix has
  bool bias;
};

class StackedExperts final : public TensorSource {
 public:
  StackedExperts(std::shared_ptr<const Checkpoint> checkpoint, std::shared_ptr<const TensorSource> rest,
                 MixtureConfig mixture)
      : checkpoint_(std::move(checkpoint)), rest_(std::move(rest)), mixture_(std::move(mixture)) {}

  Tensor tensor(const std::string& name, const Shape& expected) const override {
    const std::optional<ExpertPlace> place = place_of(name);
    if (!place) return rest_->tensor(name, expected);
    if (place->bias) return bias(*place, expected);
    return is_coded(*place) ? dequantized(coded(*place, expected), by_all_cores).values : dense(*place, expected);
  }
  Weight matrix(const std::string& module, const Shape& expected) const override {
    const std::optional<ExpertPlace> place = place_of(module + ".weight");
    if (!place) return rest_->matrix(module, expected);
    return is_coded(*place) ? coded(*place, expected) : Weight::dense(dense(*place, expected));
  }
  std::vector<const WeightFormat*> formats() const override { return rest_->formats(); }
  DType scales() const override { return rest_->scales(); }
  std::string where() const override { return rest_->where(); }

  std::vector<std::string> names() const override {
    std::vector<std::string> all;
    for (const std::string& name : rest_->names()) {
      const std::size_t at = name.find(kExperts);
      const std::string stack = at == name.npos ? "" : name.substr(at + std::strlen(kExperts));
      const auto add = [&](const std::string& end, std::initializer_list<std::string> matrices) {
        for (int e = 0; e < mixture_.experts; ++e)
          for (const std::string& matrix : matrices)
            all.push_back(name.substr(0, at) + kExperts + std::to_string(e) + "." + matrix + end);
      };
      if (stack == "gate_up_proj" || stack == "gate_up_proj_blocks")
        add(".weight", {mixture_.gate, mixture_.up});
      else if (stack == "down_proj" || stack == "down_proj_blocks")
        add(".weight", {mixture_.down});
      else if (stack == "gate_up_proj_bias")
        add(".bias", {mixture_.gate, mixture_.up});
      else if (stack == "down_proj_bias")
        add(".bias", {mixture_.down});
      else if (stack != "gate_up_proj_scales" && stack != "down_proj_scales")
        all.push_back(name);
    }
    std::ranges::sort(all);
    return all;
  }

 private:
  // Absent: the tensor is not one of an expert.
  std::optional<ExpertPlace> place_of(const std::string& name) const {
    const std::size_t at = name.find(kExperts), last = name.rfind('.');
    if (at == name.npos) return {};
    const std::size_t number = at + std::strlen(kExperts), dot = name.find('.', number);
    if (dot == name.npos || dot >= last) return {};
    ExpertPlace p{name.substr(0, number - 1), "down_proj", 0, 0, 1, 1, name.substr(last) == ".bias"};
    const auto [end, error] = std::from_chars(name.data() + number, name.data() + dot, p.expert);
    if (error != std::errc() || end != name.data() + dot || p.expert >= mixture_.experts) return {};
    const std::string matrix = name.substr(dot + 1, last - dot - 1);
    if (matrix == mixture_.down) return p;
    p.stack = "gate_up_proj", p.first = matrix == mixture_.up, p.step = p.out = 2;
    return p;
  }

  bool is_coded(const ExpertPlace& p) const { return checkpoint_->has(p.module + "." + p.stack + "_blocks"); }

  // Of the numbers of all experts in one tensor, those of one.
  Tensor stack_of(const ExpertPlace& p, const std::string& end, const Shape& shape) const {
    return checkpoint_->tensor(p.module + "." + p.stack + end, shape);
  }

  Tensor bias(const ExpertPlace& p, const Shape& expected) const {
    const std::int64_t out = expected[0], all = out * p.out;
    const Tensor stack = converted(stack_of(p, "_bias", {mixture_.experts, all}), DType::f32);
    const Tensor own = Tensor::host({out}, DType::f32);
    for (std::int64_t i = 0; i < out; ++i) own.data<float>()[i] = stack.row<float>(p.expert)[p.first + i * p.step];
    return own;
  }

  Tensor dense(const ExpertPlace& p, const Shape& expected) const {
    const std::int64_t out = expected[0], in = expected[1], all = out * p.out;
    const Tensor stack = stack_of(p, "", {mixture_.experts, in, all});
    const std::int64_t item = size_of(stack.dtype());
    const Tensor own = Tensor::host({out, in}, stack.dtype());
    const auto* const from = static_cast<const char*>(stack.raw()) + p.expert * in * all * item;
    auto* const to = static_cast<char*>(own.raw());
    in_parallel(out, in, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t o = begin; o < end; ++o)
        for (std::int64_t i = 0; i < in; ++i)
          std::memcpy(to + (o * in + i) * item, from + (i * all + p.first + o * p.step) * item, std::size_t(item));
    });
    return own;
  }

  Weight coded(const ExpertPlace& p, const Shape& expected) const {
    const std::int64_t out = expected[0], groups = expected[1] / microscaling::kGroup, all = out * p.out;
    const Parts parts(*checkpoint_, p.module, expected, "mxfp4");
    parts.expect_groups(microscaling::kGroup, "quant_method mxfp4");
    const std::string scales = p.stack + "_scales";
    const auto rows_of = [&](const Tensor& stack, std::int64_t bytes) {
      const Tensor own = Tensor::host({out, bytes}, DType::u8);
      const auto* const from = static_cast<const char*>(stack.raw()) + p.expert * all * bytes;
      for (std::int64_t o = 0; o < out; ++o)
        std::memcpy(own.row<char>(o), from + (p.first + o * p.step) * bytes, std::size_t(bytes));
      return own;
    };
    const Tensor codes =
        parts.of(p.stack + "_blocks", DType::u8, {mixture_.experts, all, groups, microscaling::kGroup / 2});
    return microscaling::unpack(parts, rows_of(codes, groups * microscaling::kGroup / 2),
                                rows_of(parts.of(scales, DType::u8, {mixture_.experts, all, groups}), groups), scales);
  }

  std::shared_ptr<const Checkpoint> checkpoint_;
  std::shared_ptr<const TensorSource> rest_;
  MixtureConfig mixture_;
};

}  // namespace

std::shared_ptr<const TensorSource> by_expert(std::shared_ptr<const Checkpoint> checkpoint,
                                              std::shared_ptr<const TensorSource> rest, const ModelConfig& config) {
  if (!config.mixture || !config.mixture->stacked) return rest;
  return std::make_shared<StackedExperts>(std::move(checkpoint), std::move(rest), *config.mixture);
}

}  // namespace foretoken
