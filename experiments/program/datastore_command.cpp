// The options of `foretoken datastore`.
#include <memory>

#include "experiments/datastore/build.h"
#include "experiments/program/commands.h"

namespace foretoken {

void add_datastore(CLI::App& app, Action& action) {
  const auto g = std::make_shared<DatastoreOptions>();
  CLI::App* c = app.add_subcommand("datastore", "write the tokens of texts as the drafter rest looks them up");
  c->add_option("texts", g->texts, "files of text, or .jsonl with a text in each line")->required();
  c->add_option("--model", g->model, "directory or GGUF file of the target, whose tokenizer is used")->required();
  c->add_option("--out", g->out, "the file to write; it is replaced when all is done")->required();
  c->add_flag("--quiet", g->quiet, "no progress");
  c->add_flag("--json", g->json, "the same for programs");
  c->callback([g, &action] { action = [g] { return run_datastore(*g); }; });
}

}  // namespace foretoken
