// The options of `foretoken quality`.
#include <memory>

#include <unistd.h>

#include "experiments/program/commands.h"
#include "experiments/program/option_values.h"
#include "experiments/quality/quality.h"
#include "experiments/report/terminal.h"

namespace foretoken {

void add_quality(CLI::App& app, Action& action) {
  const auto g = std::make_shared<QualityOptions>();
  const auto look = std::make_shared<Look>();
  CLI::App* c = app.add_subcommand(
      "quality",
      "what a format of weights, or a type of the cache, costs besides time: perplexity, KL divergence, equal outputs");
  c->add_option("--model", g->model, "Hugging Face directory, or a model as JSON, as in a run")->required();
  add_list_option(*c, "--dtype", g->dtypes, "types of its weights, a row of the tables for each (default: as stored)");
  add_list_option(*c, "--kv-dtype", g->kv_dtypes,
                  "types of its cache as of /target/kv_dtype, likewise (default: auto)");
  add_list_option(*c, "--thin", g->thinned,
                  "SINKS+WINDOW: read only so many first and last tokens of the cache, likewise, as 4+256; outputs are "
                  "not compared then");
  c->add_option("--reference", g->reference,
                "the model to compare with, likewise (default: where a type or --thin is given, the model as stored)");
  c->add_option("--text", g->text, "a text to predict, or .jsonl with a document a line (default: the demo prompts)");
  const auto count = CLI::Range(1, 100000000);
  c->add_option("--tokens", g->windows.predicted, "predict no more than so many tokens (default: all)")->check(count);
  c->add_option("--window", g->windows.window, "tokens that a prediction sees at most (default: 512, or the context)")
      ->check(count);
  c->add_option("--stride", g->windows.stride, "tokens between the beginnings of windows (default: half a window)")
      ->check(count);
  c->add_option("--prompts", g->prompts, "JSON lines whose greedy outputs are compared (default: the demo prompts)");
  c->add_option("--limit", g->limit, "prompts, spread over their categories; 0: all")
      ->check(CLI::Range(0, 100000000))
      ->capture_default_str();
  c->add_option("--max-new-tokens", g->max_new_tokens, "the most tokens of an output; 0: outputs are not compared")
      ->check(CLI::Range(0, 10000000))
      ->capture_default_str();
  c->add_option("--device", g->device, "auto, cpu, reference or cuda")->capture_default_str();
  c->add_option("--numerics", g->numerics, "of the cuda device: fast or invariant")->capture_default_str();
  c->add_option("--threads", g->threads, "0: as many as the machine has")->capture_default_str();
  c->add_option("--results", g->results, "a file to which a JSON line is appended for each row");
  c->add_flag("--quiet", g->quiet, "no progress");
  add_look(*c, *look);
  c->callback([g, look, &action] {
    action = [g, look] {
      g->format = look->chosen(), g->width = terminal_columns(STDOUT_FILENO);
      return run_quality(*g);
    };
  });
}

}  // namespace foretoken
