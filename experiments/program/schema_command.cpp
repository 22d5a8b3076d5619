// `foretoken schema` and `foretoken convert`: what lines of results hold, and lines of earlier schemas as such.
#include <cstdio>
#include <memory>
#include <string_view>

#include <spdlog/spdlog.h>

#include "experiments/program/commands.h"
#include "experiments/quantize/safetensors_file.h"
#include "experiments/report/results.h"
#include "experiments/report/terminal.h"
#include "experiments/session/workbench.h"
#include "experiments/sweep/convert.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

struct ConvertFlags {
  std::string file, out;
  std::vector<std::string> plugins;
};

int convert(const ConvertFlags& g) {
  if (has_file(g.out)) throw Error("--out " + g.out + " exists; name a new file");
  const Workbench bench(g.plugins);
  LineKind kind = result_lines();
  kind.opening = "{\"schema\":";
  kind.check = [](const nlohmann::json&, const std::string&) {};  // converted() says what is wrong
  const JsonLines found = read_json_lines(g.file, kind, Pipes::opened);
  if (found.torn) spdlog::warn("the last line of {} is incomplete; it is left out", g.file);
  std::string text;
  for (const JsonLine& line : found.lines) {
    const Result result = converted(line.value, bench.registries(), g.file + ":" + std::to_string(line.number));
    text += text_of(to_json(result), result_lines());
  }
  const std::string_view piece = text;
  write_whole(g.out, {&piece, 1});
  spdlog::info("{} lines are in {}", found.lines.size(), g.out);
  return 0;
}

}  // namespace

void add_schema(CLI::App& app, Action& action) {
  CLI::App* c = app.add_subcommand("schema", "the JSON Schema (2020-12) of a line of results, with units");
  c->callback([&action] {
    action = [] {
      print(result_schema().dump(2));
      return 0;
    };
  });
}

void add_convert(CLI::App& app, Action& action) {
  const auto g = std::make_shared<ConvertFlags>();
  CLI::App* c = app.add_subcommand("convert", "results of an earlier schema as those that this version reads");
  c->add_option("results", g->file, "a file of results, also a compressed one")->required();
  c->add_option("--out", g->out, "the file to write, which must not exist")->required();
  add_plugins(*c, g->plugins);
  c->callback([g, &action] { action = [g] { return convert(*g); }; });
}

}  // namespace foretoken
