// `foretoken report`: stored results as one HTML page.
#include <cstdio>
#include <memory>
#include <string_view>
#include <vector>

#include "experiments/program/commands.h"
#include "experiments/quantize/safetensors_file.h"
#include "experiments/report/page.h"
#include "framework/text/json_file.h"
#include "framework/text/regular_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

// A file named by mistake is not replaced.
void expect_replaceable(const std::filesystem::path& out) {
  if (!has_file(out)) return;
  const std::string bytes = read_bytes(out, out.string(), "name another file with --out");
  if (!bytes.empty() && !is_page(bytes))
    throw Error(out.string() + " exists and is no page of foretoken report; name another file with --out");
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  const auto g = std::make_shared<PageFiles>();
  CLI::App* c = app.add_subcommand("report", "stored results as one HTML page with plots, which needs no network");
  c->add_option("results", g->results, "files of results; of several lines of a run the newest counts")->required();
  add_where(*c, g->where);
  c->add_option("--out", g->out, "the page; an older one is replaced, any other file is not")->capture_default_str();
  c->add_option("--x", g->plot.x, "a plot of your own first: over /POINTER, of numbers, as /engine/batch");
  c->add_option("--y", g->plot.y, "its figure, by its name in show --format csv (default: speedup)");
  c->add_option("--colour", g->plot.colour, "/POINTER whose values are its colours (default: methods)");
  c->add_option("--columns", g->plot.columns, "/POINTER whose values are its panels (default: conditions)");
  c->callback([g, &action] {
    action = [g] {
      const auto lines = selected_results(g->results, g->where);
      const std::string text = page(lines, *g);
      expect_replaceable(g->out);
      const std::vector<std::string_view> pieces{text};
      write_whole(g->out, pieces);
      std::printf("%s\n", g->out.c_str());
      return report_damages(g->results, lines) ? 1 : 0;
    };
  });
}

}  // namespace foretoken
