// Any bytes as a regular expression ("r...") or a JSON schema ("s..."): it is refused, or it is a language whose texts
// are whole UTF-8, and JSON where it is a schema's.
#include "framework/text/grammar/automaton.h"
#include "framework/text/grammar/json_grammar.h"
#include "framework/text/grammar/regex_grammar.h"
#include "framework/text/json_file.h"
#include "framework/text/utf8.h"
#include "tests/fuzz/fuzz.h"

using namespace foretoken;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::feed(data, size, [](std::string_view input) {
    const bool schema = input.starts_with('s');
    const std::string source(input.substr(std::min<std::size_t>(1, input.size())));
    Grammar grammar;
    Automaton a(grammar.network(schema ? json_schema_part(grammar, parse_json(source, "the schema"))
                                       : regex_part(grammar, source)));
    std::uint64_t drawn = std::uint64_t(source.size()) * 7919 + 1;
    for (int text = 0; text < 20; ++text) {
      std::string written;
      for (Automaton::State s = a.start(); s != Automaton::kDead && written.size() < 200;) {
        if (a.accepts(s)) {
          fuzz::expect(replace_broken_utf8(written) == written, "a text is valid UTF-8");
          fuzz::expect(!schema || nlohmann::json::accept(written), "a text of a schema is JSON");
        }
        Automaton::State next = Automaton::kDead;
        for (int tries = 0; tries < 256 && next == Automaton::kDead; ++tries) {
          drawn = drawn * 6364136223846793005u + 1442695040888963407u;
          const std::uint8_t byte = std::uint8_t(drawn >> 40);
          next = a.next(s, byte);
          if (next != Automaton::kDead) written += char(byte);
        }
        s = next;
      }
    }
  });
}
