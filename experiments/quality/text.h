// Reads texts, and cuts the tokens of documents into windows, so that a model of bounded context predicts every token
// of a text once. This module must not know models or how a prediction is judged.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "framework/text/tokenizer.h"

namespace foretoken {

struct Document {
  std::vector<Token> tokens;
  int opening = 0;  // tokens before the text: a beginning of sequence, where the tokenizer adds one
};

// The encoded text, with what the tokenizer puts before it.
Document document_of(const Tokenizer& tokenizer, const std::string& text);

// A file of text is one document, JSON lines (.jsonl) hold one in each line. `option`: by which the user named the
// file, for messages. A file that is empty or cannot be read is an Error.
std::vector<Document> documents_of(const std::string& file, const std::string& option, const Tokenizer& tokenizer);

// A model is given the document's opening, then its tokens [begin, end), and predicts [first, end): each from all
// tokens before it in the window.
struct Window {
  int document = 0;
  int begin = 0, first = 0, end = 0;  // indices into Document::tokens
  int predictions() const { return end - first; }
  std::vector<Token> tokens(std::span<const Document> documents) const;
};

struct WindowOptions {
  int window = 512;    // tokens of a window at most, its opening included
  int stride = 256;    // tokens from the beginning of one window to that of the next
  long predicted = 0;  // tokens of the whole text that are predicted at most; 0: all
};

// Windows begin every `stride` tokens of a document until its end, and each predicts the tokens that no window before
// it predicts. So every token is predicted once, but for the opening and, where there is none, the document's first
// token. Tokens behind the first window have at least window - stride - opening tokens before them. A stride that
// leaves none, or a text without a token to predict, is an Error.
std::vector<Window> windows_of(std::span<const Document> documents, const WindowOptions& options);

}  // namespace foretoken
