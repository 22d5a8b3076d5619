// `foretoken quality`: what a format of weights, or a type of the cache, costs besides time. A model predicts a text
// and continues prompts greedily, and so does its reference; a table and a JSON line show the differences with their
// intervals. This module must not know formats.
#pragma once
#include <string>
#include <vector>

#include "experiments/quality/predictions.h"
#include "framework/model/config.h"
#include "kernels/formats/format.h"

namespace foretoken {

struct QualityOptions {
  std::string model;                   // a directory, or JSON as ModelChoice::read takes it
  std::vector<std::string> dtypes;     // types of its weights, each a row of the tables; empty: as the model says
  std::vector<std::string> kv_dtypes;  // types of its cache, likewise; empty: auto
  std::vector<std::string> thinned;    // SINKS+WINDOW: caches of which so many first and last tokens are read, in
                                       // whole pages, a row each; then no outputs are compared. Empty: whole caches
  std::string reference;               // likewise; "": the model as it is stored where types are given, else none
  std::string text;                    // a file of text, or of JSON lines (.jsonl), each a document
  WindowOptions windows{.window = 0, .stride = 0};  // 0: 512 tokens or the model's context; half a window
  std::string prompts;                              // JSON lines; their greedy outputs are compared
  int limit = 24;                                   // prompts, spread evenly over the categories; 0: all
  int max_new_tokens = 64;                          // of an output; 0: no outputs are compared
  std::string device = "auto", numerics = "invariant";
  int threads = 0;
  std::string results;              // a JSON line for each row is appended here; empty: nowhere
  std::string format = "terminal";  // terminal, markdown, csv or json
  int width = 0;                    // of the terminal
  bool quiet = false;               // no progress
};

// By the shapes of the matrices, before any weight is read: the blocks of the format divide every matrix of the layers,
// or an Error names one that they do not. `remedy`: what the user is told to do.
void expect_blocks(const ModelConfig& config, const WeightFormat& format, const std::string& remedy);

// Prints to standard output; returns an exit code.
int run_quality(const QualityOptions& options);

}  // namespace foretoken
