#include "experiments/bench/weight_stream.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "framework/model/in_parallel.h"
#include "kernels/formats/activations/activation_format.h"

namespace foretoken {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

WeightStream::WeightStream(Backend& backend, const std::vector<ProductShape>& all, const std::string& dtype)
    : shapes(all) {
  int layers = 1;
  for (const ProductShape& s : shapes) layers = std::max(layers, s.layers);
  for (int l = 0; l < layers; ++l)
    for (std::size_t i = 0; i < shapes.size(); ++i)
      if (shapes[i].layers == layers) add(backend, i, dtype);
  for (std::size_t i = 0; i < shapes.size(); ++i)
    if (shapes[i].layers < layers) add(backend, i, dtype);
}

std::vector<double> WeightStream::run(Backend& backend, const std::map<std::int64_t, Tensor>& inputs, int rows) const {
  std::vector<double> seconds(shapes.size() + 1, 0.0);
  const auto start = Clock::now();
  auto before = start;
  for (const Step& step : steps) {
    backend.linear(inputs.at(shapes[step.shape].in).rows(0, rows), step.weight);
    const auto now = Clock::now();
    seconds[step.shape] += std::chrono::duration<double>(now - before).count();
    before = now;
  }
  seconds.back() = std::chrono::duration<double>(before - start).count();
  return seconds;
}

void WeightStream::add(Backend& backend, std::size_t i, const std::string& dtype) {
  Tensor values = Tensor::host({shapes[i].out, shapes[i].in}, dtype == "f32" ? DType::f32 : DType::bf16);
  std::minstd_rand engine(unsigned(steps.size()) + 1);
  for (std::int64_t k = 0; k < values.elements(); ++k) {
    const float v = float(engine() % 1024) / 512 - 1;
    if (dtype == "f32")
      values.data<float>()[k] = v;
    else
      values.data<bf16>()[k] = bf16(v);
  }
  Weight w = Weight::dense(values);
  if (const Precision* precision = find_precision(dtype)) w = quantize(w, *precision, by_all_cores);
  w = backend.prepare(std::move(w));
  w.values = {};  // products read the packed copy
  bytes += w.bytes();
  shapes[i].weight_bytes = double(w.bytes()) / double(shapes[i].out * shapes[i].in);
  steps.push_back({i, std::move(w)});
}

std::map<std::int64_t, Tensor> inputs_of(const std::vector<ProductShape>& shapes, int rows) {
  std::map<std::int64_t, Tensor> inputs;
  for (const ProductShape& s : shapes) {
    inputs[s.in] = Tensor::host({rows, s.in}, DType::f32);
    for (float& v : inputs[s.in].values<float>()) v = 0.5f;
  }
  return inputs;
}

}  // namespace foretoken
