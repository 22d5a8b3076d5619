// The sequences as a model of another vocabulary reads them: in other tokens, of which there may be more or fewer. What
// is read follows from a sequence's tokens and the end of its prompt alone, and never changes while it grows. This
// module must not know caches.
#pragma once
#include <unordered_map>

#include "framework/decode/sequence.h"
#include "framework/model/vocabulary_map.h"

namespace foretoken {

class ReadSequences {
 public:
  // null: the model has the target's vocabulary, and reads sequences as they are.
  explicit ReadSequences(const VocabularyMap* map) : map_(map) {}
  bool translates() const { return map_ != nullptr; }
  // Valid until the sequence is forgotten.
  const Sequence& of(const Sequence& sequence) { return map_ ? translated(sequence) : sequence; }
  void forget(SequenceId id) { read_.erase(id); }

 private:
  struct Read {
    Sequence sequence;  // with the id, the tokens and `verified` alone
    int length = 0;     // of what it was made of, without tokens that may be taken back
    int own = 0;        // tokens of that
  };
  const Sequence& translated(const Sequence& sequence);

  const VocabularyMap* map_;
  std::unordered_map<SequenceId, Read> read_;
};

}  // namespace foretoken
