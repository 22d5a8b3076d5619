#include "experiments/quality/documents.h"

#include <filesystem>

#include "experiments/sweep/workload.h"
#include "framework/text/regular_file.h"
#include "kernels/error.h"

namespace foretoken {

std::vector<Document> documents_of(const std::string& file, const std::string& option, const Tokenizer& tokenizer) {
  const std::filesystem::path path = locate(file);
  std::vector<Document> all;
  if (path.extension() == ".jsonl") {
    for (const Prompt& p : read_prompts(path)) all.push_back(document_of(tokenizer, p.text));
  } else {
    const std::string text = read_bytes(path, "the text '" + path.string() + "'", "name a file of text with " + option);
    if (text.empty()) throw Error("the text '" + path.string() + "' is empty; name a file of text with " + option);
    all.push_back(document_of(tokenizer, text));
  }
  return all;
}

}  // namespace foretoken
