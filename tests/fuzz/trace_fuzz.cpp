// Any bytes as an acceptance trace: read, and replayed with every verifier and cut.
#include "experiments/trace/replay.h"
#include "tests/fuzz/fuzz.h"

using namespace foretoken;

namespace {

// What is refused has a message.
template <class F> void ask(const F& question) {
  try {
    question();
  } catch (const Error& e) {
    fuzz::expect(!std::string(e.what()).empty(), "an error has a message");
  }
}

const Registries& registries() {
  static const Registries all = [] {
    Registries made;
    register_drafters(made), register_verifiers(made);
    return made;
  }();
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::feed(data, size, [](std::string_view bytes) {
    const fuzz::MemoryFile file(bytes);
    const Trace trace = read_trace(file.path());
    const CostTable costs(trace);
    ReplayReport report{"trace", &trace, {}, {}, costs.error(), costs.steps()};
    ask([&] { report.orders = orders_of({{"trace", &trace}}); });
    ask([&] {
      const Replay replay(trace, costs, registries());
      for (const char* verifier : {"speculative_sampling", "block_verification", "target_match", "k_seq", "coupled"}) {
        for (const int length : {0, 1, 2, kMaxPath})
          ask([&] { report.rows.push_back(replay.cut("cut", {.depth = length}, verifier)); });
        ask([&] { report.rows.push_back(replay.oracle({}, verifier)); });
      }
    });
    for (const Replayed& row : report.rows)
      fuzz::expect(row.rounds <= row.tokens * (1 + 1e-6), "a round emits at least one token");
    (void)replay_report(report, "json", 0);
    (void)replay_report(report, "terminal", 100);
  });
}
