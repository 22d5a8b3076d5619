// Reads texts: a file of text is one document, JSON lines (.jsonl) hold one in each line. This module must not know
// what they are read for.
#pragma once
#include <string>
#include <vector>

#include "experiments/quality/windows.h"

namespace foretoken {

// `option`: by which the user named the file, for messages. A file that is empty or cannot be read is an Error.
std::vector<Document> documents_of(const std::string& file, const std::string& option, const Tokenizer& tokenizer);

}  // namespace foretoken
