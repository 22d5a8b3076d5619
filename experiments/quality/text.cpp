#include "experiments/quality/text.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "experiments/sweep/workload.h"
#include "framework/text/regular_file.h"
#include "kernels/error.h"

namespace foretoken {

Document document_of(const Tokenizer& tokenizer, const std::string& text) {
  Document d{tokenizer.encode(text), 0};
  const auto body = std::ranges::search(d.tokens, tokenizer.encode(text, false));
  d.opening = int(body.begin() - d.tokens.begin());
  return d;
}

std::vector<Token> Window::tokens(std::span<const Document> documents) const {
  const Document& d = documents[std::size_t(document)];
  std::vector<Token> all(d.tokens.begin(), d.tokens.begin() + d.opening);
  all.insert(all.end(), d.tokens.begin() + begin, d.tokens.begin() + end);
  return all;
}

std::vector<Window> windows_of(std::span<const Document> documents, const WindowOptions& o) {
  std::vector<Window> all;
  long left = o.predicted > 0 ? o.predicted : std::numeric_limits<int>::max();
  for (std::size_t i = 0; i < documents.size() && left > 0; ++i) {
    const Document& d = documents[i];
    if (o.stride < 1 || o.stride + d.opening >= o.window)
      throw Error("windows of " + std::to_string(o.window) + " tokens cannot begin every " + std::to_string(o.stride) +
                  " tokens, since a token of a later window would have nothing before it; lower --stride or raise "
                  "--window");
    int predicted = std::max(d.opening, 1);  // the first token that no window predicts yet
    const int end = int(std::min<long>(long(d.tokens.size()), predicted + left));
    for (int begin = d.opening; predicted < end; begin += o.stride) {
      const int last = std::min(begin + o.window - d.opening, end);
      all.push_back({.document = int(i), .begin = begin, .first = predicted, .end = last});
      left -= last - predicted;
      predicted = last;
    }
  }
  if (all.empty()) throw Error("the text is too short: it has no token that follows another; give a longer one");
  return all;
}

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
