// Any text as the document of a run or a sweep: its runs are complete, and completing one again changes nothing.
#include "drafters/drafters.h"
#include "experiments/session/run_document.h"
#include "experiments/sweep/sweep.h"
#include "tests/fuzz/fuzz.h"
#include "verifiers/verifiers.h"

using namespace foretoken;

namespace {

Registries all() {
  Registries registries;
  register_drafters(registries);
  register_verifiers(registries);
  return registries;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Registries registries = all();
  return fuzz::feed(data, size, [](std::string_view text) {
    const fuzz::MemoryFile file(text);
    const auto document = read_document(file.path());
    (void)plugins_of(document);
    constexpr std::size_t kMostRuns = 300;  // the number that a user may have takes too long under the sanitizers
    for (const Run& run : expand(document, {}, registries, "input.json", kMostRuns))
      fuzz::expect(key_of(complete_run(run.document, registries, "again")) == run.key, "a complete run is complete");
  });
}
