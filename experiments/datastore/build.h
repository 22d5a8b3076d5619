// `foretoken datastore`: tokenizes texts and writes them with their suffix array, as the drafter `rest` reads them.
// This module must not know the format (drafters/datastore.h).
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace foretoken {

struct DatastoreOptions {
  std::vector<std::string> texts;  // files: a text each, or .jsonl with a text in each line
  std::string model;               // whose tokenizer is used: a directory or a GGUF file
  std::filesystem::path out;       // replaced when all is done
  bool json = false, quiet = false;
};

// What a datastore holds.
struct DatastoreFacts {
  std::int64_t texts = 0, tokens = 0, bytes = 0;
};

// Each text, and each line of a .jsonl file, is a document, and no match crosses from one into another. A line's text
// is its "text", or its "prompt", "question" or "turns"; those are read one after another as documents of their own.
// All tokens are in memory meanwhile, about 30 bytes each. A file that cannot be read, a line without a text, or texts
// without tokens are an Error.
DatastoreFacts build_datastore(const DatastoreOptions& options);

// The command: progress on standard error, one line on standard output; returns an exit code.
int run_datastore(const DatastoreOptions& options);

}  // namespace foretoken
