#include "experiments/quality/windows.h"

#include <algorithm>
#include <limits>

#include "kernels/error.h"

namespace foretoken {
namespace {

// The windows of one document; at most `most` tokens are predicted.
void cut(const Document& d, int number, const WindowOptions& o, long most, std::vector<Window>& all) {
  const int size = int(d.tokens.size()), capacity = o.window - d.opening;
  int predicted = std::max(d.opening, 1);  // the first token that no window predicts yet
  const int end = int(std::min<long>(size, predicted + most));
  for (int begin = d.opening; predicted < end; begin += o.stride) {
    const int last = std::min(begin + capacity, end);
    all.push_back({number, begin, predicted, last});
    predicted = last;
  }
}

}  // namespace

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
    const std::size_t before = all.size();
    cut(d, int(i), o, left, all);
    for (std::size_t w = before; w < all.size(); ++w) left -= all[w].predictions();
  }
  if (all.empty()) throw Error("the text is too short: it has no token that follows another; give a longer one");
  return all;
}

}  // namespace foretoken
