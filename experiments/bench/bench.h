// `foretoken bench`: the limits of the machine, and matrix products in proportion to them. Measures the read bandwidth
// and the multiply-add peak in the same run as the products, in alternation, and prints roofline(n) = max(bytes /
// bandwidth, operations / peak); for the demo pair also what bench_bars.h measures, else a sentence that it was left
// out. This module must not know sequences or drafters.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "framework/model/config.h"

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

}  // namespace foretoken
