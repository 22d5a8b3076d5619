// The options of `foretoken quantize`.
#include <memory>

#include <unistd.h>

#include "experiments/program/commands.h"
#include "experiments/quantize/quantize.h"
#include "experiments/report/terminal.h"

namespace foretoken {

void add_quantize(CLI::App& app, Action& action) {
  const auto g = std::make_shared<QuantizeOptions>();
  CLI::App* c = app.add_subcommand("quantize", "write a model with quantized weights, as Transformers loads it");
  c->add_option("--model", g->model, "Hugging Face directory of a dense model")->required();
  c->add_option("--format", g->format, "of the weights: int4, nf4, fp8, sparse24, ...; another name lists all")
      ->required();
  c->add_option("--method", g->method.name,
                "rtn: each weight to the nearest number; by the inputs of a text: gptq, awq, smoothquant, wanda")
      ->check(CLI::IsMember(quantization_methods()))
      ->capture_default_str();
  c->add_option("--calibrate", g->method.calibrate, "a text for the other methods, or .jsonl with a document a line");
  c->add_option("--tokens", g->method.tokens,
                "of that text, at most (default: " + std::to_string(kCalibrationTokens) + ")")
      ->check(CLI::Range(1, 100000000));
  c->add_option("--alpha", g->method.alpha, "of smoothquant, 0 to 1: how much of the inputs' range weights take (0.5)");
  c->add_flag("--act-order", g->method.act_order, "gptq: columns in the order of their inputs' squares");
  c->add_option("--device", g->method.device, "that reads the text (default: auto)")
      ->check(CLI::IsMember({"auto", "cpu", "reference", "cuda"}));
  c->add_option("--out", g->out, "the directory to write; DIR.partial keeps what is done if it is interrupted")
      ->required();
  c->add_flag("--quiet", g->quiet, "no progress");
  c->add_flag("--json", g->json, "the same for programs");
  c->callback([g, &action] {
    action = [g] {
      g->width = terminal_columns(STDOUT_FILENO);
      return run_quantize(*g);
    };
  });
}

}  // namespace foretoken
