// The weights of a model's forward, in memory in the order in which it reads them, so that products of them read memory
// as a forward does. This module must not know how they are timed.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "experiments/bench/bench.h"
#include "kernels/backend.h"

namespace foretoken {

struct WeightStream {
  struct Step {
    std::size_t shape;
    Weight weight;
  };
  std::vector<ProductShape> shapes;  // with the bytes of their weights
  std::vector<Step> steps;
  std::int64_t bytes = 0;

  // Weights of `dtype`: bf16, f32 or a weight format.
  WeightStream(Backend& backend, const std::vector<ProductShape>& all, const std::string& dtype);
  // Seconds of one pass with `rows` rows, by shape; the last entry is the total.
  std::vector<double> run(Backend& backend, const std::map<std::int64_t, Tensor>& inputs, int rows) const;

 private:
  void add(Backend& backend, std::size_t i, const std::string& dtype);
};

// Rows of every width that the products take, by width.
std::map<std::int64_t, Tensor> inputs_of(const std::vector<ProductShape>& shapes, int rows);

}  // namespace foretoken
