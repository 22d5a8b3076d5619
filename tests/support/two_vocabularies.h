// Table models of two vocabularies: a target and a draft model that have some words in common, in another order, and
// each a word that the other spells with several tokens.
#pragma once
#include <string>
#include <vector>

#include "experiments/conformance/scenario.h"
#include "framework/model/vocabulary_map.h"

namespace foretoken::test {

using namespace conformance;

// The longest word of the list that the text begins with is the next token, over and over; what begins with none is
// left out by characters. Words in angle brackets are special.
std::shared_ptr<const Tokenizer> tokenizer_of(std::vector<std::string> words, std::vector<Token> beginning = {});

// Of a target of `vocab` tokens, at least 3: letters, then "ab".
std::vector<std::string> target_words(int vocab);
// The same letters from the last to the first, then "ba" and "x", which the target lacks.
std::vector<std::string> draft_words(int vocab);
std::shared_ptr<const VocabularyMap> map_of_words(int vocab);
// The draft model's own table, by a name of named_table().
TableModel::Options draft_table(const std::string& name, const TableModel::Options& target);

Models models_of_two_vocabularies(Backend& backend, const TableModel::Options& target);

}  // namespace foretoken::test
