// The whole library in one look: load a model, draft by prompt lookup, decode, print how much was accepted.
#include <cstdio>
#include <map>

#include "drafters/drafters.h"
#include "framework/engine/engine.h"
#include "framework/model/transformer.h"
#include "framework/text/tokenizer.h"
#include "verifiers/verifiers.h"

using namespace foretoken;

int main(int argc, char** argv) try {
  const std::string directory = argc > 1 ? argv[1] : "experiments/models/target";
  const auto tokenizer = Tokenizer::load(directory);
  const auto backend = make_cpu_backend();
  const auto target = std::make_shared<Transformer>(*backend, ModelConfig::load(directory), Checkpoint::open(directory),
                                                    directory, tokenizer->fingerprint());
  Registries registries;
  register_drafters(registries);
  register_verifiers(registries);
  Engine engine(*backend, target, registries,
                {{{"name", "ngram"}}, {{"name", "fixed"}, {"length", 4}}, {{"name", "speculative_sampling"}}}, {});

  Request request;
  request.prompt = tokenizer->encode("Repeat after me: one two three four, one two three four, one two");
  request.limits.max_new_tokens = 48;
  engine.submit(request);

  std::map<int, int> rounds;  // accepted draft tokens -> rounds in which so many were
  int emitted = 0;
  while (!engine.idle()) {
    const StepReport report = engine.step();
    for (const SequenceReport& sequence : report.sequences) {
      if (sequence.judged) ++rounds[sequence.accepted];
      emitted += int(sequence.emitted.size());
    }
    for (const Sequence& sequence : report.finished) std::puts(tokenizer->decode(sequence.tokens).c_str());
  }
  for (const auto& [accepted, count] : rounds) std::printf("%2d accepted: %d rounds\n", accepted, count);
  return emitted > 0 && emitted <= 48 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
