#include "experiments/datastore/build.h"

#include <cstdio>
#include <optional>

#include <nlohmann/json.hpp>

#include "drafters/datastore.h"
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

}  // namespace

DatastoreFacts build_datastore(const DatastoreOptions& o) {
  expect_place(o.out);
  const auto tokenizer = ModelFiles::open(locate(o.model))->tokenizer();
  DatastoreFacts facts;
  std::vector<Token> tokens;
  std::optional<Progress> progress(std::in_place, "foretoken datastore", int(o.texts.size()), 0, o.quiet, "files");
  for (std::size_t i = 0; i < o.texts.size(); ++i) {
    progress->show(int(i), o.texts[i]);
    for (const std::string& text : texts_of(locate(o.texts[i]))) {
      check_interrupt();
      const std::vector<Token> of = tokenizer->encode(text, false);
      if (of.empty()) continue;
      if (facts.texts++ > 0) tokens.push_back(Datastore::kSeparator);
      tokens.insert(tokens.end(), of.begin(), of.end());
    }
  }
  progress.reset();
  const std::string bytes = Datastore::bytes_of(tokens, tokenizer->vocab(), tokenizer->fingerprint());
  check_interrupt();
  const std::string_view piece = bytes;
  write_whole(o.out, {&piece, 1});
  facts.tokens = std::int64_t(tokens.size()), facts.bytes = std::int64_t(bytes.size());
  return facts;
}

int run_datastore(const DatastoreOptions& o) {
  watch_interrupts();
  const DatastoreFacts f = build_datastore(o);
  const nlohmann::json facts{
      {"out", o.out.string()}, {"texts", f.texts}, {"tokens", f.tokens}, {"bytes", f.bytes}, {"model", o.model}};
  print(o.json ? facts.dump()
               : o.out.string() + ": " + std::to_string(f.tokens) + " tokens of " + std::to_string(f.texts) +
                     " texts, " + std::to_string(f.bytes) + " bytes\n");
  return 0;
}

}  // namespace foretoken
