// Any bytes as a file of results: shown in every format and as a page, compared with itself, searched for the best
// tree, opened to continue a sweep.
#include "experiments/report/page.h"
#include "experiments/report/report.h"
#include "experiments/report/results.h"
#include "tests/experiments/report/made_results.h"
#include "tests/fuzz/fuzz.h"

using namespace foretoken;

namespace {

// Tables, or the message why there are none.
template <class F> void print(const F& table) {
  try {
    (void)table();
  } catch (const Error& e) {
    fuzz::expect(!std::string(e.what()).empty(), "an error has a message");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::feed(data, size, [](std::string_view bytes) {
    static const char* const kFormats[] = {"terminal", "markdown", "csv", "json"};
    const fuzz::MemoryFile file(bytes);
    const auto lines = load_results(file.path());
    const std::string format = kFormats[bytes.size() % 4];  // one format each, since the bootstrap intervals take long
    print([&] { return show(lines, {format, {}, 100}); });
    print([&] { return page(lines, {}); });
    CompareOptions options;
    options.format = format;
    print([&] { return compare(lines, lines, options); });
    print([&] { return tree_shape(lines, {8, {}, format, 100}); });
    ResultsFile again(file.path());  // cuts off a torn last line
    fuzz::expect(load_results(file.path()).size() == lines.size(), "no whole line is lost");
    const nlohmann::json run = nlohmann::json::object(),
                         side = test::measure({{0, nullptr, 2, 1, 1, 1, 1, 1.0}}, {1}, {1}, {1}, {0, 1}, 1, 1);
    again.append(foretoken::made(nlohmann::json{{"schema", kResultSchema},
                                                {"key", key_of(run)},
                                                {"run", run},
                                                {"repeats", {{{"baseline", side}, {"speculative", side}}}}}));
    fuzz::expect(load_results(file.path()).size() == lines.size() + 1 && again.has(key_of(run)), "a line is added");
  });
}
