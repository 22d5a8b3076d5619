// `foretoken datastore`: tokenizes texts and writes them with their suffix array, as the drafter `rest` reads them. The
// format is that of drafters/datastore.h.
#include <optional>

#include "drafters/datastore.h"
#include "experiments/program/commands.h"
#include "experiments/quantize/safetensors_file.h"
#include "experiments/report/terminal.h"
#include "experiments/session/interrupt.h"
#include "experiments/sweep/progress.h"
#include "experiments/sweep/workload.h"
#include "framework/model/model_files.h"
#include "framework/text/regular_file.h"
#include "framework/text/tokenizer.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

namespace fs = std::filesystem;

struct DatastoreFlags {
  std::vector<std::string> texts;  // files: a text each, or .jsonl with a text in each line
  std::string model;               // whose tokenizer is used: a directory or a GGUF file
  fs::path out;                    // replaced when all is done
  bool json = false, quiet = false;
};

// The texts of one file.
std::vector<std::string> texts_of(const fs::path& file) {
  if (file.extension() != ".jsonl")
    return {read_bytes(file, "the text '" + file.string() + "'", "name files of text, or .jsonl")};
  std::vector<std::string> all;
  for (Prompt& p : read_prompts(file)) {
    all.push_back(std::move(p.text));
    for (std::string& turn : p.later) all.push_back(std::move(turn));
  }
  return all;
}

// Before the work, which takes minutes for large texts.
void expect_place(const fs::path& out) {
  std::error_code error;
  const fs::path folder = out.has_parent_path() ? out.parent_path() : ".";
  if (!fs::is_directory(folder, error))
    throw Error("the folder of --out " + out.string() + " does not exist; make it, or name another file");
  if (fs::is_directory(out, error)) throw Error("--out " + out.string() + " is a folder; name a file");
}

// Each text, and each line of a .jsonl file, is a document, and no match crosses from one into another. A line's text
// is its "text", or its "prompt", "question" or "turns"; those are read one after another as documents of their own.
// All tokens are in memory meanwhile, about 30 bytes each.
int write_datastore(DatastoreFlags& g) {
  watch_interrupts();
  expect_place(g.out);
  const auto tokenizer = ModelFiles::open(locate(g.model))->tokenizer();
  std::int64_t texts = 0;
  std::vector<Token> tokens;
  std::optional<Progress> progress(std::in_place, "foretoken datastore", int(g.texts.size()), 0, g.quiet, "files");
  for (std::size_t i = 0; i < g.texts.size(); ++i) {
    progress->show(int(i), g.texts[i]);
    for (const std::string& text : texts_of(locate(g.texts[i]))) {
      check_interrupt();
      const std::vector<Token> of = tokenizer->encode(text, false);
      if (of.empty()) continue;
      if (texts++ > 0) tokens.push_back(Datastore::kSeparator);
      tokens.insert(tokens.end(), of.begin(), of.end());
    }
  }
  progress.reset();
  const std::string bytes = Datastore::bytes_of(tokens, tokenizer->vocab(), tokenizer->fingerprint());
  check_interrupt();
  write_whole(g.out, bytes);
  const std::string out = g.out.string();
  const nlohmann::json facts{
      {"out", out}, {"texts", texts}, {"tokens", tokens.size()}, {"bytes", bytes.size()}, {"model", g.model}};
  print(g.json ? facts.dump()
               : out + ": " + std::to_string(tokens.size()) + " tokens of " + std::to_string(texts) + " texts, " +
                     std::to_string(bytes.size()) + " bytes\n");
  return 0;
}

}  // namespace

void add_datastore(Commands& all) {
  const auto [c, g] =
      all.add_subcommand("datastore", "write the tokens of texts as the drafter rest looks them up", write_datastore);
  c.add_option("texts", g.texts, "files of text, or .jsonl with a text in each line")->required();
  c.add_option("--model", g.model, "directory or GGUF file of the target, whose tokenizer is used")->required();
  c.add_option("--out", g.out, "the file to write; it is replaced when all is done")->required();
  c.add_flag("--quiet", g.quiet, "no progress");
  c.add_flag("--json", g.json, "the same for programs");
}

}  // namespace foretoken
