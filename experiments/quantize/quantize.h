// `foretoken quantize`: rounds the matrices of a model's layers to a format and writes them as a checkpoint that
// Transformers loads. One layer is in memory at a time. This module must not know how a format rounds or is stored.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "experiments/quantize/method.h"

namespace foretoken {

struct QuantizeOptions {
  std::filesystem::path model;  // a dense checkpoint in Hugging Face form
  std::string format;           // of storable_formats()
  MethodOptions method;
  std::filesystem::path out;  // a directory that does not exist yet
  bool json = false;          // print JSON instead of a table
  int width = 0;              // of the terminal
  bool quiet = false;         // no progress
};

// How far the rounded matrices of a layer are from the original ones: |W - W'| / |W|, Frobenius norms.
struct LayerError {
  int layer = 0;
  double error = 0;    // of all its matrices together
  double outputs = 0;  // the same of the outputs of its products on the calibration text, whose inputs are rounded
                       // where the checkpoint's are; NaN without one
  double worst = 0;    // of one matrix
  std::string matrix;  // that one, as "mlp.down_proj"
};

// Writes OUT.partial and renames it to OUT. What has been written of it is kept when the work is interrupted, and used
// when the same command is given again. Calls `done(finished)` after each layer; what it throws interrupts the work. An
// `out` that exists, a model that is quantized already, weights that are not finite, or a disk that is full is an
// Error.
std::vector<LayerError> quantize_checkpoint(const QuantizeOptions& options,
                                            const std::function<void(int finished, int layers)>& done);

// The command: progress on standard error, a table or JSON of the errors on standard output; returns an exit code.
int run_quantize(const QuantizeOptions& options);

}  // namespace foretoken
