#include "experiments/session/response_format.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "framework/decode/token_grammar.h"
#include "framework/text/grammar/automaton.h"
#include "framework/text/grammar/json_grammar.h"
#include "framework/text/grammar/regex_grammar.h"
#include "framework/text/json_file.h"
#include "framework/text/known_names.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

const std::vector<std::string> kTypes{"text", "json_object", "json_schema", "regex"};

const json& member(const json& object, const char* key, const std::string& owner) {
  const auto it = object.find(key);
  if (it == object.end()) throw Error(owner + " needs '" + key + "'");
  return *it;
}

void expect_keys(const json& object, const std::vector<std::string>& known, const std::string& owner) {
  for (const auto& [key, value] : object.items()) expect_option(owner, key, known);
}

// The network of a format; none: any text.
std::optional<Network> network_of(const json& format) {
  if (format.is_null()) return std::nullopt;
  if (!format.is_object() || !format.contains("type") || !format["type"].is_string())
    throw Error("a response format is an object with a type, as {\"type\": \"json_object\"}, not " + shown(format));
  const std::string type = format["type"].get<std::string>(), owner = "the response format '" + type + "'";
  Grammar grammar;
  if (type == "text" || type == "json_object") {
    expect_keys(format, {"type"}, owner);
    return type == "text" ? std::nullopt : std::optional(grammar.network(json_object_part(grammar)));
  }
  if (type == "json_schema") {
    expect_keys(format, {"type", "json_schema"}, owner);
    const json& named = member(format, "json_schema", owner);
    if (!named.is_object()) throw Error(owner + " has a 'json_schema' that is no object");
    expect_keys(named, {"schema", "name", "strict", "description"}, owner + ", in 'json_schema',");
    return grammar.network(json_schema_part(grammar, member(named, "schema", owner)));
  }
  if (type == "regex") {
    expect_keys(format, {"type", "pattern"}, owner);
    const json& pattern = member(format, "pattern", owner);
    if (!pattern.is_string()) throw Error(owner + " has a 'pattern' that is no string");
    return grammar.network(regex_part(grammar, pattern.get<std::string>()));
  }
  unknown_name("type of response format", type, kTypes);
}

struct Made {
  std::weak_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const TokenBytes> bytes;
  json format;
  std::vector<Token> ends;
  std::shared_ptr<const TokenGrammar> constraint;
};
constexpr std::size_t kKept = 8;  // each has up to 64 MiB of masks

}  // namespace

void expect_response_format(const json& format) {
  if (std::optional<Network> network = network_of(format)) Automaton(std::move(*network));
}

std::shared_ptr<const Constraint> constraint_of(const json& format, const std::shared_ptr<const Tokenizer>& tokenizer,
                                                std::span<const Token> ends) {
  static std::mutex mutex;
  static std::deque<Made> recent;
  if (format.is_null() || format == json{{"type", "text"}}) return nullptr;
  const std::scoped_lock lock(mutex);
  std::shared_ptr<const TokenBytes> bytes;
  for (const Made& m : recent)
    if (m.tokenizer.lock() == tokenizer) bytes = m.bytes;
  std::erase_if(recent, [](const Made& m) { return m.tokenizer.expired() || m.constraint->crowded(); });
  const auto known = std::ranges::find_if(recent, [&](const Made& m) {
    return m.tokenizer.lock() == tokenizer && m.format == format && std::ranges::equal(m.ends, ends);
  });
  if (known != recent.end()) {
    std::rotate(recent.begin(), known, known + 1);  // the one that was used last comes first
    return recent.front().constraint;
  }
  std::optional<Network> network = network_of(format);
  if (!network) return nullptr;
  if (!bytes) bytes = std::make_shared<const TokenBytes>(*tokenizer);
  std::vector<Token> all(ends.begin(), ends.end());
  recent.push_front({tokenizer, bytes, format, all, std::make_shared<TokenGrammar>(bytes, std::move(*network), all)});
  if (recent.size() > kKept) recent.pop_back();
  return recent.front().constraint;
}

}  // namespace foretoken
