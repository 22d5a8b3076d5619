#include "tests/support/two_vocabularies.h"

#include <utility>

#include "framework/model/translated_model.h"

namespace foretoken::test {
namespace {

class WordTokenizer : public Tokenizer {
 public:
  WordTokenizer(std::vector<std::string> words, std::vector<Token> beginning)
      : words_(std::move(words)), beginning_(std::move(beginning)) {}
  std::vector<Token> encode(std::string_view text, bool special) const override {
    std::vector<Token> ids = special ? beginning_ : std::vector<Token>();
    while (!text.empty()) {
      Token longest = -1;
      for (Token t = 0; t < vocab(); ++t)
        if (text.starts_with(words_[std::size_t(t)]) && (longest < 0 || length(t) > length(longest))) longest = t;
      if (longest >= 0) ids.push_back(longest);
      text.remove_prefix(longest >= 0 ? length(longest) : 1);
    }
    return ids;
  }
  std::vector<Token> encode_inside(std::string_view text) const override { return encode(text, false); }
  std::span<const Token> beginning() const override { return beginning_; }
  std::string decode(std::span<const Token> tokens, bool special) const override {
    std::string text;
    for (const Token t : tokens)
      if (special || !is_special(t)) text += words_.at(std::size_t(t));
    return text;
  }
  std::string decode_inside(std::span<const Token> tokens, bool special) const override {
    return decode(tokens, special);
  }
  int vocab() const override { return int(words_.size()); }
  bool is_special(Token t) const override { return words_.at(std::size_t(t)).starts_with('<'); }
  std::uint64_t fingerprint() const override { return 0; }

 private:
  std::size_t length(Token t) const { return words_[std::size_t(t)].size(); }

  std::vector<std::string> words_;
  std::vector<Token> beginning_;
};

}  // namespace

std::shared_ptr<const Tokenizer> tokenizer_of(std::vector<std::string> words, std::vector<Token> beginning) {
  return std::make_shared<WordTokenizer>(std::move(words), std::move(beginning));
}

std::vector<std::string> target_words(int vocab) {
  std::vector<std::string> words;
  for (int i = 0; i + 1 < vocab; ++i) words.emplace_back(1, char('a' + i));
  words.emplace_back("ab");
  return words;
}

std::vector<std::string> draft_words(int vocab) {
  std::vector<std::string> words;
  for (int i = vocab - 2; i >= 0; --i) words.emplace_back(1, char('a' + i));
  words.emplace_back("ba"), words.emplace_back("x");
  return words;
}

std::shared_ptr<const VocabularyMap> map_of_words(int vocab) {
  const auto theirs = target_words(vocab), ours = draft_words(vocab);
  return std::make_shared<VocabularyMap>(
      VocabularyMap::Side{"the table of the target", vocab, tokenizer_of(theirs)},
      VocabularyMap::Side{"the table of the draft", int(ours.size()), tokenizer_of(ours)});
}

TableModel::Options draft_table(const std::string& name, const TableModel::Options& target) {
  TableModel::Options own = named_table(name, target);
  own.vocab = int(draft_words(target.vocab).size());
  return own;
}

Models models_of_two_vocabularies(Backend& backend, const TableModel::Options& target) {
  Models models = table_models(target);
  models.load = [&backend, target, map = map_of_words(target.vocab),
                 info = models.target->info()](const ModelChoice& choice) {
    return std::make_shared<TranslatedModel>(
        backend, std::make_shared<TableModel>(draft_table(choice.directory, target)), map, info);
  };
  return models;
}

}  // namespace foretoken::test
