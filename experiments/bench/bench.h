// `foretoken bench`: the limits of the machine, and matrix products in proportion to them. Measures the read bandwidth
// and the multiply-add peak in the same run as the products, in alternation, and prints roofline(n) = max(bytes /
// bandwidth, operations / peak); for the demo pair also its bars, else a sentence that it was left
// out. This module must not know sequences or drafters.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/model/config.h"
#include "kernels/backend.h"

namespace foretoken {

inline constexpr int kPageRows = 16;  // slots of a page of the caches that are measured

struct BenchOptions {
  std::string model;           // directory or published shape whose products to measure; empty: the demo target's
  std::string dtype = "bf16";  // of the weights: bf16, f32 or a weight format
  int threads = 0;             // 0: as many as the machine has
  bool json = false;           // print JSON instead of tables
  std::string instructions;    // of the cpu backend; empty: the best
  int repeats = 40;            // of every measurement; medians are reported
  std::vector<int> rows;       // of the products; empty: 1 to 64
  std::string results;         // a JSON line is appended here; empty: nowhere
};

// Prints to standard output; returns an exit code. A model directory without a usable config.json is an
// Error.
int run_bench(const BenchOptions& options);

// A product of a forward: y [rows, out] = x [rows, in] W^T, once in each of `layers` layers.
struct ProductShape {
  std::string name;
  std::int64_t out = 0, in = 0;
  int layers = 1;
  double weight_bytes = 2;  // that a product reads for a weight, its share of the scales included
  std::int64_t weights() const { return out * in * layers; }
};

std::vector<ProductShape> demo_shapes();
// Of a model's forward; as many layers as 2 GiB hold.
std::vector<ProductShape> shapes_of(const ModelConfig& config);

// Limits of a machine, for a working set of a certain size.
struct Ceiling {
  double bytes_a_second = 0, operations_a_second = 0;
  // The least seconds that `rows` rows through these products can take, with weights read once.
  double roofline(const std::vector<ProductShape>& shapes, int rows) const;
};

// The weights of a model's forward, in memory in the order in which it reads them, so that products of them read memory
// as a forward does.
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

// One line of the second table: whole steps of the demo pair, a long attention and a prompt on the cpu device, with the
// bar that the project requires. roofline = max(bytes / bandwidth, operations / peak), both measured in the same
// alternation.
struct Bar {
  std::string name;
  double bytes = 0, operations = 0;  // of what was timed; 0: not relevant to the bar
  double seconds = 0, roofline = 0;  // medians; roofline 0: none
  double figure = 0;
  std::string unit;  // of the figure
  double bar = 0;
  bool at_most = false;  // else `figure` must be at least `bar`

  bool met() const { return at_most ? figure <= bar : figure >= bar; }
};

// Every line is measured `repeats` times, in alternation with all others and with the machine's bandwidth and peak.
std::vector<Bar> measure_bars(int threads, int repeats);

void print_bars(const std::vector<Bar>& bars);
nlohmann::json as_json(const std::vector<Bar>& bars);

}  // namespace foretoken
