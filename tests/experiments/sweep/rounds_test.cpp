// Sweeps go in rounds, and go on where they were stopped: no alternation is lost or measured twice.
#include "experiments/sweep/rounds.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "experiments/report/report.h"
#include "experiments/report/summary.h"
#include "experiments/session/interrupt.h"
#include "framework/text/json_file.h"
#include "tests/experiments/report/results_files.h"
#include "tests/experiments/sweep/demo_runs.h"
#include "tests/framework/text/temporary_folder.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

class SweepsInRounds : public Runs {
 protected:
  foretoken::Run named(const std::string& name, json changes) {
    changes["workload"]["limit"] = 2;
    foretoken::Run run = run_of(changes);
    names_[run.key] = name;
    return run;
  }
  // Three runs, of two and one alternations.
  std::vector<foretoken::Run> three() {
    return {named("a", {{"policy", {{"length", 2}}}}),
            named("b", {{"drafter", {{"name", "ngram"}, {"model", nullptr}}}}),
            named("c", {{"measure", {{"repeats", 1}}}})};
  }
  // The order in which runs are measured until all have their lines, or until alternation number `most` begins.
  std::string order(const std::vector<foretoken::Run>& runs, std::size_t most = 100) {
    ResultsFile file(options.results);
    Unfinished unfinished(options.results);
    std::vector<foretoken::Run> wanted;
    for (const foretoken::Run& run : runs)
      if (!file.has(run.key)) wanted.push_back(run);
    Rounds rounds(wanted, bench, options, file, unfinished);
    std::string found;
    const auto note = [&](const foretoken::Run& run) {
      if (found.ends_with(names_[run.key])) return;
      found += names_[run.key];
      if (found.size() == most) throw Interrupted();
    };
    const auto failed = [](const foretoken::Run&, const std::string&) {};
    try {
      rounds.look(first_looks(wanted), note, failed);
      rounds.measure(note, failed);
    } catch (const Interrupted&) {
      EXPECT_EQ(found.size(), most);
    }
    return found;
  }
  json line_of_run(const foretoken::Run& run) {
    json found;
    for (const Result& result : load_results(options.results))
      if (result.key == run.key) found = to_json(result);
    return found;
  }
  std::vector<std::string> kept() {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "r.jsonl.unfinished"))
      found.push_back(entry.path().filename());
    std::ranges::sort(found);
    return found;
  }

  TemporaryFolder folder;
  SweepOptions options{folder.path() / "r.jsonl", "", "test", true, false};
  std::map<std::string, std::string> names_;
};

TEST_F(SweepsInRounds, MeasureAnAlternationOfEachRunBeforeTheNextOfAny) {
  const auto runs = three();
  EXPECT_EQ(order(runs), "abcab");
  EXPECT_EQ(line_of_run(runs[0])["interleaved"], 2) << "the fewest of its rounds";
  EXPECT_EQ(line_of_run(runs[2])["interleaved"], 3);
  EXPECT_EQ(line_of_run(runs[0])["repeats"].size(), 2u);
  EXPECT_EQ(line_of_run(runs[2])["repeats"].size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "r.jsonl.unfinished")) << "nothing is left over";
}

TEST_F(SweepsInRounds, LookAtEveryValueOfEveryAxisFirst) {
  std::vector<foretoken::Run> runs;
  const std::vector<std::vector<int>> values{{1, 1}, {1, 2}, {2, 1}, {2, 2}};  // policy length, seed
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int length = values[i][0], seed = values[i][1];
    runs.push_back(named({char('a' + i)}, {{"policy", {{"length", length}}}, {"sampling", {{"seed", seed}}}}));
    runs.back().axes = {{"/policy/length", length}, {"/sampling/seed", seed}};
  }
  EXPECT_EQ(first_looks(runs), (std::set<std::string>{runs[0].key, runs[3].key}));
  std::string first;
  for (const foretoken::Run& run : first_round(runs, bench.registries())) first += names_[run.key];
  EXPECT_EQ(first, "adbc");
  EXPECT_EQ(order(runs), "adbcabcd") << "two alternations of each, the second in the order of what they load";
  EXPECT_EQ(line_of_run(runs[3])["interleaved"], 4);
  for (foretoken::Run& run : runs) run.axes = json::object();
  EXPECT_TRUE(first_looks(runs).empty());
}

TEST(FirstLooks, AreFewAndQuicklyFound) {
  std::vector<foretoken::Run> grid, line;
  for (int i = 0; i < 20'000; ++i) {
    grid.push_back({{}, {{"/a", i / 200}, {"/b", i % 200}}, "g" + std::to_string(i)});
    line.push_back({{}, {{"/a", i}}, "l" + std::to_string(i)});
  }
  EXPECT_EQ(first_looks(grid).size(), 200u);
  EXPECT_EQ(first_looks(line).size(), 20'000u);
}

// As `show` reads it while the sweep runs, or after it was stopped.
TEST_F(SweepsInRounds, AreReadWhereTheyWereStopped) {
  const auto runs = three();
  order(runs, 4);
  const std::vector<Result> results = load_with_unfinished(options.results);
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(to_json(results[0]), line_of_run(runs[2]));
  for (const Result& result : {results[1], results[2]}) {
    ASSERT_TRUE(result.unfinished);
    EXPECT_EQ(result.unfinished->done, 1);
    EXPECT_EQ(result.unfinished->of, 2);
    EXPECT_EQ(result.repeats.size(), 1u);
    EXPECT_EQ(key_of(result.run), result.key);
    EXPECT_EQ(damage_of(result), "");
    EXPECT_EQ(to_json(result)["unfinished"], json({{"done", 1}, {"of", 2}}));
  }
  const std::string shown = show(results, {"markdown", {"main"}, 0});
  EXPECT_TRUE(says(shown, "1 of 2 alternations", "draft_model", "ngram"));
  EXPECT_FALSE(holds(show({results[0]}, {"csv", {"main"}, 0}), "unfinished"));
  order(runs);
  for (const Result& result : load_with_unfinished(options.results)) EXPECT_FALSE(result.unfinished);
}

TEST_F(SweepsInRounds, AreReadWithoutWhatIsDamaged) {
  const auto runs = three();
  const auto left = [&](const std::function<void(json&)>& change) {
    std::filesystem::remove(options.results);
    std::filesystem::remove_all(folder.path() / "r.jsonl.unfinished");
    order({runs[0], runs[2]}, 3);
    const std::filesystem::path file = folder.path() / "r.jsonl.unfinished" / (runs[0].key + "-0.json");
    json kept = read_json(file);
    change(kept);
    std::ofstream(file) << kept.dump();
    return load_with_unfinished(options.results).size();
  };
  EXPECT_EQ(left([](json&) {}), 2u);
  EXPECT_EQ(left([](json& kept) { kept.erase("run"); }), 1u);
  EXPECT_EQ(left([](json& kept) { kept["schema"] = 1; }), 1u) << "of an earlier version";
  EXPECT_EQ(left([](json& kept) { kept["run"]["sampling"]["seed"] = 77; }), 1u) << "of another run";
  EXPECT_EQ(left([](json& kept) { kept["engine"].erase("promise"); }), 1u);
  EXPECT_EQ(left([](json& kept) { kept["baseline"]["record"] = json::object(); }), 1u);
  EXPECT_EQ(left([](json& kept) { kept = json::array(); }), 1u);
  const Result failed = failed_result(runs[0], "it failed later", 0, bench, "");
  EXPECT_EQ(left([&](json&) { ResultsFile(options.results).append(failed); }), 2u);
  EXPECT_EQ(load_with_unfinished(options.results).back().error, "it failed later") << "which is not hidden";
  EXPECT_TRUE(says(sentence_of([] { load_with_unfinished("nowhere.jsonl"); }), "nowhere.jsonl"));
}

TEST_F(SweepsInRounds, GoOnWhereTheyWereStopped) {
  const auto runs = three();
  EXPECT_EQ(order(runs, 4), "abca") << "stopped in the second alternation of a";
  EXPECT_EQ(kept(), (std::vector<std::string>{std::min(runs[0].key, runs[1].key) + "-0.json",
                                              std::max(runs[0].key, runs[1].key) + "-0.json"}));
  const json first = Unfinished(options.results).at(runs[0].key, 0), finished = line_of_run(runs[2]);
  EXPECT_EQ(order(runs), "ab");
  const json line = line_of_run(runs[0]);
  EXPECT_EQ(line["repeats"][0]["baseline"], first["baseline"]["record"]) << "as it was measured then";
  EXPECT_EQ(line["repeats"][1]["first"], "speculative");
  EXPECT_EQ(line["alternations"], json({{"compared", true}, {"differing", json::array()}}));
  EXPECT_EQ(line["agreement"]["compared_texts"], 24);
  EXPECT_EQ(line["interleaved"], 2);
  EXPECT_EQ(line_of_run(runs[2]), finished);
  EXPECT_EQ(order(runs), "");
}

TEST_F(SweepsInRounds, MixNoAlternationsOfTwoPrograms) {
  const auto runs = three();
  order(runs, 4);
  Unfinished unfinished(options.results);
  json other = unfinished.at(runs[1].key, 0);
  other["origin"]["commit"] = "another";
  unfinished.add(other);
  EXPECT_EQ(order(runs), "bab") << "a goes on, b begins again";
  EXPECT_NE(line_of_run(runs[1])["commit"], "another");
  EXPECT_EQ(line_of_run(runs[1])["repeats"].size(), 2u);
}

// What a power failure, an editor or a copied folder may leave: the runs begin again, and nothing of it is in a line.
TEST_F(SweepsInRounds, MixInNoDamagedAlternations) {
  const auto runs = three();
  const std::filesystem::path left = folder.path() / "r.jsonl.unfinished" / (runs[0].key + "-0.json");
  const auto damage = [&](const std::function<void(json&)>& change) {
    std::filesystem::remove(options.results);
    std::filesystem::remove_all(left.parent_path());
    EXPECT_EQ(order({runs[0]}, 1), "a");
    EXPECT_EQ(order({runs[0], runs[2]}, 2), "ac") << "one alternation of a is kept";
    json kept = read_json(left);
    kept["baseline"]["record"]["seconds"] = 12345;
    change(kept);
    std::ofstream(left) << kept.dump();
  };
  const auto again = [&](const std::function<void(json&)>& change) {
    damage(change);
    const std::string found = order({runs[0]});
    EXPECT_NE(line_of_run(runs[0])["repeats"][0]["baseline"]["seconds"], 12345);
    EXPECT_EQ(line_of_run(runs[0])["repeats"].size(), 2u);
    return found;
  };
  EXPECT_EQ(again([](json& kept) { kept["origin"]["commit"] = "another"; }), "a");
  EXPECT_EQ(again([&](json& kept) { kept["key"] = runs[1].key; }), "a") << "of another document";
  EXPECT_EQ(again([](json& kept) { kept["alternation"] = 1; }), "a");
  EXPECT_EQ(again([](json& kept) { kept.erase("origin"); }), "a");
  EXPECT_EQ(again([](json& kept) { kept["measured_seconds"] = "long"; }), "a");
  EXPECT_EQ(again([](json& kept) { kept = json::array(); }), "a");
  damage([](json&) {});
  const std::string text = bytes_of(left);
  std::ofstream(left) << text.substr(0, text.size() / 2);
  EXPECT_EQ(order({runs[0]}), "a") << "a torn file";
  EXPECT_NE(line_of_run(runs[0])["repeats"][0]["baseline"]["seconds"], 12345);
}

// Requests are encoded, and an engine is asked what it is, once for all alternations of a run.
TEST_F(SweepsInRounds, AlternationsServeWhatWasPrepared) {
  const foretoken::Run run = run_of();
  PreparedRun prepared = prepare(run, bench, "");
  EXPECT_EQ(prepared.jobs.size(), 12u);
  EXPECT_TRUE(prepared.engine.compared);
  prepared.jobs.resize(3);
  prepared.engine.promise = "as prepared";
  for (int k = 0; k < 2; ++k) {
    const MeasuredAlternation found = measure_alternation(run, k, prepared, bench, "", [](double) {}, nullptr);
    EXPECT_EQ(found.engine.promise, "as prepared");
    EXPECT_EQ(found.baseline.record.requests.size(), 3u);
    EXPECT_EQ(found.speculative.record.requests.size(), 3u);
  }
}

TEST_F(SweepsInRounds, ShareABaselineInEachRoundAlsoAfterAStop) {
  options.share_baselines = true;
  const auto runs = three();
  EXPECT_EQ(order({runs[0], runs[1]}, 1), "a");
  EXPECT_EQ(order({runs[0], runs[1]}, 2), "ab") << "stopped in the first round, after a";
  EXPECT_EQ(order({runs[0], runs[1]}), "bab");
  const json a = line_of_run(runs[0])["repeats"], b = line_of_run(runs[1])["repeats"];
  for (int k = 0; k < 2; ++k) EXPECT_EQ(a[k]["baseline"], b[k]["baseline"]);
  EXPECT_NE(a[0]["baseline"], a[1]["baseline"]);
  EXPECT_EQ(line_of_run(runs[0])["shared_baseline"], true);
}

TEST_F(SweepsInRounds, GoOnWithoutARunThatFails) {
  std::vector<foretoken::Run> runs = three();
  runs[1] = named("b", {{"workload", {{"prompts", "nowhere.jsonl"}}}});
  EXPECT_EQ(order(runs), "abca");
  EXPECT_TRUE(line_of_run(runs[1]).contains("error"));
  EXPECT_EQ(line_of_run(runs[0])["repeats"].size(), 2u);
  EXPECT_EQ(order(runs), "b") << "tried again";
}

TEST_F(SweepsInRounds, RunsOfOneTargetGoTogetherNeighboursByWhatTheyLoad) {
  const json ngram = {{"drafter", {{"name", "ngram"}, {"model", nullptr}}}};
  json other = ngram, longer = {{"policy", {{"length", 5}}}}, batch = {{"engine", {{"batch", 1}}}};
  other["target"] = {{"model", "experiments/models/draft"}};
  const std::vector<foretoken::Run> runs{named("draft", {}), named("ngram", ngram), named("other", other),
                                         named("longer", longer), named("batch", batch)};
  std::string found;
  for (const auto& group : groups_of(runs, bench.registries())) {
    for (const foretoken::Run& run : group) found += names_[run.key] + " ";
    found += "| ";
  }
  EXPECT_EQ(found, "draft longer batch ngram | other | ");
}

json alternation(const std::string& key, int k) {
  return {{"schema", kResultSchema}, {"key", key}, {"alternation", k}, {"value", k * 10}};
}

TEST(UnfinishedRuns, CountFromTheFirstWithoutAGap) {
  const TemporaryFolder folder;
  Unfinished kept(folder.path() / "r.jsonl");
  EXPECT_EQ(kept.count("aa"), 0);
  for (const int k : {0, 1, 3}) kept.add(alternation("aa", k));
  kept.add(alternation("ab", 0));
  EXPECT_EQ(kept.count("aa"), 2);
  EXPECT_EQ(kept.at("aa", 1)["value"], 10);
  std::ofstream(kept.folder() / "aa-1.json") << "{\"alternation\": 1, ";
  EXPECT_EQ(kept.count("aa"), 1) << "a damaged one is measured again";
  kept.drop("aa");
  EXPECT_EQ(kept.count("aa"), 0);
  EXPECT_EQ(kept.count("ab"), 1);
}

TEST(UnfinishedRuns, AreWhatTheirNamesSay) {
  const TemporaryFolder folder;
  Unfinished kept(folder.path() / "r.jsonl");
  const auto write = [&](const std::string& name, const json& value) {
    kept.add(alternation("zz", 0));  // the folder
    std::ofstream(kept.folder() / name) << value.dump();
  };
  write("aa-0.json", alternation("aa", 0));
  write("aa-1.json", alternation("aa", 2));
  write("bb-0.json", alternation("aa", 0));
  write("cc-0.json", {{"alternation", 0}});
  write("dd-0.json", {{"key", "dd"}, {"alternation", "0"}});
  write("ee-0.json", "ee");
  EXPECT_EQ(kept.count("aa"), 1);
  for (const char* key : {"bb", "cc", "dd", "ee"}) EXPECT_EQ(kept.count(key), 0) << key;
  EXPECT_TRUE(says(sentence_of([&] { kept.at("aa", 1); }), "aa-1.json", "start it again"));
}

TEST(UnfinishedRuns, OfAnotherSchemaAreRefused) {
  const TemporaryFolder folder;
  Unfinished kept(folder.path() / "r.jsonl");
  json older = alternation("aa", 0);
  older["schema"] = 1;
  kept.add(older);
  EXPECT_TRUE(says(sentence_of([&] { (void)kept.count("aa"); }), "r.jsonl.unfinished", "another version",
                   "remove that folder"));
}

TEST(UnfinishedRuns, MoveToTheProcessThatMeasuresThem) {
  const TemporaryFolder folder;
  Unfinished all(folder.path() / "r.jsonl"), part(folder.path() / "r.process-1.jsonl");
  for (const std::string key : {"aa", "bb"}) all.add(alternation(key, 0)), all.add(alternation(key, 1));
  all.move("aa", part);
  EXPECT_EQ(all.count("aa"), 0);
  EXPECT_EQ(part.count("aa"), 2);
  EXPECT_EQ(all.count("bb"), 2);
  part.move_all(all);
  EXPECT_EQ(all.count("aa"), 2);
  EXPECT_FALSE(std::filesystem::exists(part.folder()));
  all.drop_all();
  EXPECT_FALSE(std::filesystem::exists(all.folder()));
}

}  // namespace
}  // namespace foretoken::test
