// rest: suffix arrays, longest matches and trees beside slow accounts of the same, and files that are refused.
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <sstream>

#include <gtest/gtest.h>

#include "drafters/datastore.h"
#include "drafters/drafters.h"
#include "drafters/suffix_array.h"
#include "framework/cache/page_pool.h"
#include "framework/components/host.h"
#include "kernels/error.h"
#include "tests/framework/text/temporary_folder.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

using nlohmann::json;
using Tokens = std::vector<Token>;
constexpr Token kEnd = Datastore::kSeparator;

std::vector<std::int32_t> sorted(const std::vector<std::int32_t>& symbols, int kinds) {
  std::vector<std::int32_t> order(symbols.size());
  sort_suffixes(symbols, kinds, order);
  return order;
}

TEST(SuffixArray, Is_the_order_of_all_suffixes) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 3000; ++trial) {
    const int kinds = 1 + int(random() % 6);
    std::vector<std::int32_t> symbols(random() % 60);
    for (auto& s : symbols) s = std::int32_t(random() % unsigned(kinds));
    if (trial % 3 == 0)  // repeats, whose pieces are equal: the recursion
      for (std::size_t i = 4; i < symbols.size(); ++i) symbols[i] = symbols[i % 4];
    std::vector<std::int32_t> want(symbols.size());
    std::iota(want.begin(), want.end(), 0);
    std::ranges::sort(want, [&](int a, int b) {
      return std::ranges::lexicographical_compare(std::span(symbols).subspan(std::size_t(a)),
                                                  std::span(symbols).subspan(std::size_t(b)));
    });
    ASSERT_EQ(sorted(symbols, kinds), want) << trial;
  }
}

// Every suffix is less than the one behind it in the array; and each is there once.
TEST(SuffixArray, Of_many_kinds) {
  std::mt19937 random(2);
  std::vector<std::int32_t> symbols(40'000);
  for (auto& s : symbols) s = std::int32_t(random() % 9 == 0 ? random() % 70'000 : random() % 3);
  const auto order = sorted(symbols, 70'000);
  std::vector<char> seen(symbols.size(), 0);
  const auto suffix = [&](std::int32_t at) { return std::span(symbols).subspan(std::size_t(at)); };
  for (std::size_t i = 0; i < order.size(); ++i) {
    ++seen[std::size_t(order[i])];
    ASSERT_TRUE(i == 0 || std::ranges::lexicographical_compare(suffix(order[i - 1]), suffix(order[i]))) << i;
  }
  EXPECT_EQ(std::ranges::count(seen, 1), std::ptrdiff_t(seen.size()));
}

// Texts of few tokens, so that much repeats.
Tokens random_texts(std::mt19937& random, int size, int kinds) {
  Tokens all;
  for (int i = 0; i < size; ++i) all.push_back(i % 23 == 22 ? kEnd : Token(random() % unsigned(kinds)));
  return all;
}

// How often `wanted` occurs.
int count_of(const Tokens& texts, std::span<const Token> wanted) {
  int found = 0;
  for (std::size_t at = 0; at + wanted.size() <= texts.size(); ++at)
    found += std::ranges::equal(wanted, std::span(texts).subspan(at, wanted.size()));
  return found;
}

void expect_longest(const Tokens& texts, const Datastore::Search& s, int longest, int shortest) {
  int length = 0, count = 0;
  for (int n = shortest; n <= std::min(longest, int(s.context.size())); ++n)
    if (const int found = count_of(texts, s.context.last(std::size_t(n))); found > 0) length = n, count = found;
  ASSERT_EQ(s.length, length);
  ASSERT_EQ(length > 0 ? int(s.last - s.first) : 0, count);
}

TEST(Datastore, Finds_the_longest_match_and_all_its_places) {
  std::mt19937 random(3);
  int found = 0, cut = 0;
  for (const int vocab : {4, 70'000}) {  // tokens of 2 and of 4 bytes
    for (int trial = 0; trial < 60; ++trial) {
      const Tokens texts = random_texts(random, 1 + int(random() % 300), 4);
      const Datastore store(Datastore::bytes_of(texts, vocab, 7));
      ASSERT_EQ(store.tokens(), std::int64_t(texts.size()));
      for (std::size_t i = 0; i < texts.size(); ++i) ASSERT_EQ(store.token(std::int64_t(i)), texts[i]);
      const int shortest = 1 + int(random() % 3), longest = shortest + int(random() % 7);
      std::vector<Tokens> contexts(random() % 20);
      std::vector<Datastore::Search> searches;
      for (Tokens& c : contexts) {
        c.resize(random() % 12);
        for (Token& t : c) t = Token(random() % 4);
        searches.push_back({c});
      }
      store.find(searches, longest, shortest);
      for (const Datastore::Search& s : searches) {
        expect_longest(texts, s, longest, shortest);
        for (std::uint32_t i = s.first; i < s.last; ++i)
          for (int k = 0; k < s.length; ++k)
            ASSERT_EQ(store.token(std::int64_t(store.begin(i)) + k), s.context[s.context.size() - s.length + k]);
        found += s.length > 0, cut += s.length < std::min(longest, int(s.context.size()));
      }
    }
  }
  EXPECT_GT(found, 500);
  EXPECT_GT(cut, 200);
}

TEST(Datastore, No_match_goes_from_one_text_into_the_next) {
  const Datastore store(Datastore::bytes_of(Tokens{1, 2, kEnd, 3, 4}, 9, 0));
  const Tokens context{2, 3};
  Datastore::Search s{context};
  store.find({&s, 1}, 4, 2);
  EXPECT_EQ(s.length, 0);
  store.find({&s, 1}, 4, 1);
  EXPECT_EQ(s.length, 1);
}

struct Rest : ::testing::Test {
  std::unique_ptr<Backend> backend = make_reference_backend();
  std::shared_ptr<Kept> kept = std::make_shared<Kept>();
  ModelInfo target;
  Registries registries;
  TemporaryFolder folder;

  Rest() {
    register_drafters(registries);
    target.name = "t", target.vocab = 9, target.vocabulary = 7, target.kv = KvShape(1, 1, 2, DType::f32);
  }
  std::string file(const Tokens& texts, const std::string& name = "s.rest", int vocab = 9, std::uint64_t words = 7) {
    return write(Datastore::bytes_of(texts, vocab, words), name);
  }
  std::string write(const std::string& bytes, const std::string& name = "s.rest") {
    const auto path = folder.path() / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path.string();
  }
  std::unique_ptr<Drafter> drafter(json options) {
    options["name"] = "rest";
    PagePool pool(*backend, 64, 1);
    Host host(*backend, pool, target, {}, false, {.kept = kept});
    return registries.drafters.make(options, host);
  }
  // The paths to the nodes of the tree after this context, in the order of the nodes.
  std::vector<Tokens> paths(Drafter& rest, const Tokens& context, const Budget& budget) {
    Sequence s;
    s.tokens = context, s.prompt_length = int(context.size());
    DraftRequest request;
    request.sequence = &s, request.budget = budget;
    const DraftTree tree = std::move(rest.draft({&request, 1}).front());
    std::vector<Tokens> all{{}};
    for (int n = 1; n < tree.nodes; ++n) {
      all.push_back(all.at(std::size_t(*tree.parents.row<std::int32_t>(n))));
      all.back().push_back(*tree.known.row<Token>(n));
      EXPECT_EQ(Drawn(*tree.q.drawn.row<std::uint8_t>(n)), Drawn::certain);
    }
    all.erase(all.begin());
    return all;
  }
  // What a run with this file is refused for, before anything is loaded.
  std::string refusal(const std::string& path) {
    return sentence_of([&] { (void)registries.drafters.traits({{"name", "rest"}, {"datastore", path}}, target); });
  }
};

TEST_F(Rest, Guesses_the_most_frequent_beginnings_first) {
  const Tokens texts{1, 2, 3, 4, kEnd, 1, 2, 3, 5, kEnd, 1, 2, 3, 4, kEnd, 1, 2, 6, 4, kEnd, 8, 2, 7};
  const auto rest = drafter({{"datastore", file(texts)}});
  EXPECT_EQ(paths(*rest, {0, 1, 2}, {9, 4}), (std::vector<Tokens>{{3}, {3, 4}, {6}, {3, 5}, {6, 4}}));
  EXPECT_EQ(paths(*rest, {0, 1, 2}, {3, 4}), (std::vector<Tokens>{{3}, {3, 4}})) << "as many as the budget has";
  EXPECT_EQ(paths(*rest, {0, 1, 2}, {9, 1}), (std::vector<Tokens>{{3}, {6}})) << "no more levels than the budget has";
  EXPECT_EQ(paths(*rest, {0, 8, 2}, {9, 4}), (std::vector<Tokens>{{7}})) << "of the longest match alone";
  EXPECT_TRUE(paths(*rest, {4, 2}, {9, 4}).empty()) << "matches of two tokens at least";
  EXPECT_TRUE(paths(*rest, {1, 2}, {1, 0}).empty());
}

// Frequencies are those of the matches, no frequent beginning is left out for a rarer one, and none is missing.
TEST_F(Rest, Trees_on_random_texts) {
  std::mt19937 random(5);
  int nodes = 0, full = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const Tokens texts = random_texts(random, 400, 3);
    const auto rest = drafter({{"datastore", file(texts, std::to_string(trial))}, {"longest", 3}, {"matches", 1000}});
    const Tokens context{Token(random() % 3), Token(random() % 3), Token(random() % 3)};
    const Budget budget{int(1 + random() % 30), int(1 + random() % 5)};
    Tokens match = context;
    if (count_of(texts, match) == 0) match.erase(match.begin());
    std::map<Tokens, int> frequency;  // of what follows the match
    for (std::size_t at = match.size(); at < texts.size(); ++at) {
      if (!std::ranges::equal(match, std::span(texts).subspan(at - match.size(), match.size()))) continue;
      Tokens path;
      for (std::size_t k = at; k < texts.size() && texts[k] != kEnd && int(path.size()) < budget.depth; ++k)
        path.push_back(texts[k]), ++frequency[path];
    }
    const std::vector<Tokens> have = paths(*rest, context, budget);
    ASSERT_EQ(have.size(), std::min(frequency.size(), std::size_t(budget.nodes) - 1));
    int least = 1 << 30;
    for (const Tokens& path : have) {
      ASSERT_TRUE(frequency.contains(path));
      ASSERT_LE(frequency.at(path), least) << "in the order of their frequency";
      least = frequency.at(path);
      frequency.erase(path);
    }
    for (const auto& [path, count] : frequency) ASSERT_LE(count, least);
    nodes += int(have.size()), full += frequency.empty();
  }
  EXPECT_GT(nodes, 3000);
  EXPECT_GT(full, 20);
}

TEST_F(Rest, A_bounded_number_of_matches_has_their_proportions) {
  Tokens texts;
  for (int i = 0; i < 1000; ++i) texts.insert(texts.end(), {1, 2, Token(i % 10 < 6 ? 5 : i % 10 < 9 ? 4 : 3), kEnd});
  const auto rest = drafter({{"datastore", file(texts)}, {"matches", 10}});
  EXPECT_EQ(paths(*rest, {1, 2}, {9, 2}), (std::vector<Tokens>{{5}, {4}, {3}}));
  const auto one = drafter({{"datastore", file(texts)}, {"matches", 1}});
  EXPECT_EQ(paths(*one, {1, 2}, {9, 2}).size(), 1u);
}

TEST_F(Rest, Engines_share_one_mapping) {
  const std::string path = file({1, 2, 3});
  const auto mappings = [&] {
    std::ifstream maps("/proc/self/maps");
    std::string line;
    int count = 0;
    while (std::getline(maps, line)) count += line.ends_with(path);
    return count;
  };
  const auto one = drafter({{"datastore", path}}), two = drafter({{"datastore", path}, {"shortest", 1}});
  EXPECT_EQ(mappings(), 1);
}

TEST_F(Rest, Refuses_what_is_no_datastore_of_the_target) {
  const std::string whole = Datastore::bytes_of(Tokens{1, 2, 3}, 9, 7);
  EXPECT_EQ(refusal(file({1, 2, 3})), "");
  EXPECT_TRUE(says(refusal((folder.path() / "none").string()), "none is no file", "foretoken datastore TEXTS"));
  EXPECT_TRUE(says(refusal(folder.path().string()), "is no file"));
  EXPECT_TRUE(says(refusal(write("")), "too short to be one", "foretoken datastore"));
  EXPECT_TRUE(says(refusal(write(std::string(500, 'x'))), "is no datastore of rest", "foretoken datastore"));
  EXPECT_TRUE(says(refusal(write(whole.substr(0, whole.size() - 1))), "has 83 bytes", "says 84",
                   "not written or copied", "foretoken datastore"));
  EXPECT_TRUE(says(refusal(write(whole + "x")), "has 85 bytes"));
  std::string newer = whole;
  newer[16] = 2;
  EXPECT_TRUE(says(refusal(write(newer)), "has version 2", "reads version 1"));
  for (std::size_t at = 20; at < 64; ++at) {
    std::string damaged = whole;
    damaged[at] = char(damaged[at] ^ 1);
    EXPECT_TRUE(says(refusal(write(damaged)), "a damaged header")) << at;
  }
  EXPECT_TRUE(says(refusal(file({1, 2, 3}, "s.rest", 9, 8)), "another tokenizer", "of t", "--model DIR"));
  EXPECT_TRUE(says(refusal(file({1, 2, 3}, "s.rest", 10)), "another tokenizer"));
  EXPECT_EQ(refusal(file({1, 2, 3}, "s.rest", 8)), "") << "a target may have more rows than its tokenizer has tokens";
}

// So results name its file and hold a hash of it, and a path beside a run's document is found.
TEST_F(Rest, States_the_file_that_it_reads) {
  const auto paths = [&](const json& datastore) {
    return registries.drafters.files(registries.drafters.complete({{"name", "rest"}, {"datastore", datastore}})).paths;
  };
  EXPECT_EQ(paths("a.rest"), std::vector<std::string>{"a.rest"});
  EXPECT_TRUE(paths({{"random", 9}}).empty());
  const auto beside = [](const std::string& path) { return "beside/" + path; };
  EXPECT_EQ(registries.drafters.with_paths({{"name", "rest"}, {"datastore", "a.rest"}}, beside).at("datastore"),
            "beside/a.rest");
}

TEST_F(Rest, Refuses_options_that_cannot_be) {
  const auto refused = [&](const json& options) { return sentence_of([&] { drafter(options); }); };
  EXPECT_TRUE(says(refused({}), "needs the option 'datastore'"));
  EXPECT_TRUE(says(refused({{"datastore", file({1})}, {"longest", 2}, {"shortest", 3}}), "'longest' is 2"));
  for (const json& d : {json{{"random", 0}}, json{{"random", "x"}}, json{{"size", 3}}, json::object()})
    EXPECT_TRUE(says(refused({{"datastore", d}}), "the path of a file, or {\"random\": TOKENS}")) << d;
}

TEST(Datastore, Refuses_texts_without_tokens) {
  EXPECT_TRUE(says(sentence_of([] { (void)Datastore::bytes_of({}, 9, 0); }), "no tokens", "longer"));
}

// Whatever numbers follow an intact header, searches end and tokens are tokens.
TEST(Datastore, Damaged_numbers_make_wrong_guesses_alone) {
  std::mt19937 random(6);
  for (int trial = 0; trial < 300; ++trial) {
    std::string bytes = Datastore::bytes_of(random_texts(random, 50, 4), 4, 7);
    for (std::size_t i = 64; i < bytes.size(); ++i)
      if (random() % 4 == 0) bytes[i] = char(random());
    const Datastore store(bytes);
    const Tokens context{Token(random() % 4), Token(random() % 4), Token(random() % 4)};
    Datastore::Search s{context};
    store.find({&s, 1}, 3, 1);
    ASSERT_LE(s.last, 50u);
    for (std::uint32_t i = s.first; i < s.last; ++i)
      for (int k = 0; k < 60; ++k) {
        const Token t = store.token(std::int64_t(store.begin(i)) + k);
        ASSERT_TRUE(t == kEnd || (t >= 0 && t < 4));
      }
  }
}

}  // namespace
}  // namespace foretoken::test
