#include "framework/components/plugin.h"

#include <algorithm>
#include <cstdio>

#include <dlfcn.h>
#include <xxhash.h>

#include "framework/components/named_faults.h"
#include "framework/components/shared_library.h"
#include "framework/components/thrown.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

constexpr const char* kRebuild =
    "rebuild it against this installation (./foretoken install, then configure and build the plugin afresh)";

std::string hash_of(const std::string& bytes) {
  char hex[17];
  std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(XXH3_64bits(bytes.data(), bytes.size())));
  return hex;
}

template <class Function> Function* find(const SharedLibrary& library, const char* name, const std::string& who) {
  if (void* const symbol = find_symbol(library, name)) return reinterpret_cast<Function*>(symbol);
  throw Error(who + " does not export " + name + "(); define it as extern \"C\", as drafters/template/ does");
}

// Calls a function of the library. Its exceptions are caught here, while the library is still loaded.
template <class F> decltype(auto) called(const std::string& who, const char* function, const F& call) {
  try {
    return call();
  } catch (...) {
    throw Error(who + " failed in " + function + ": " + thrown());
  }
}

std::vector<std::string> fields(const std::string& abi) {
  std::vector<std::string> all;
  for (std::size_t at = 0; at <= abi.size();) {
    const std::size_t end = std::min(abi.find("; ", at), abi.size());
    all.push_back(abi.substr(at, end - at));
    at = end + 2;
  }
  return all;
}

// The fields of `a` that `b` lacks, separated by commas.
std::string difference(const std::string& a, const std::string& b) {
  const auto others = fields(b);
  std::string s;
  for (const auto& field : fields(a))
    if (std::ranges::find(others, field) == others.end()) s += (s.empty() ? "" : ", ") + field;
  return s;
}

void expect_abi(const SharedLibrary& library, const std::string& who) {
  auto* const function = find<const char*()>(library, "foretoken_abi", who);
  const char* const abi = called(who, "foretoken_abi()", [&] { return function(); });
  if (!abi) throw Error(who + ": foretoken_abi() returns null; let it return foretoken::kAbi");
  if (std::string(abi) != kAbi)
    throw Error(who + " was built for another ABI (" + difference(abi, kAbi) + ") than this program's (" +
                difference(kAbi, abi) + "); " + kRebuild);
}

// Entries of `from` that `to` lacks; returns their number.
template <class T> int move_new(const Registry<T>& from, Registry<T>& to, const std::string& path) {
  int count = 0;
  for (const auto& [name, entry] : from.entries()) {
    if (to.entries().contains(name)) continue;
    if (!entry.make)
      throw Error("the plugin " + path + " registers the " + to.what() + " '" + name +
                  "' without a way to make it; fill Entry::make");
    Entry<T> mine = naming_faults(entry, "the " + to.what() + " '" + name + "' of the plugin " + path);
    mine.plugin = path;
    to.add(name, std::move(mine));
    ++count;
  }
  return count;
}

}  // namespace

void load_plugin(const std::filesystem::path& path, Registries& registries) {
  const std::string who = "the plugin " + path.string();
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    throw Error("there is no plugin " + path.string() + (error ? " (" + error.message() + ")" : "") +
                "; name the shared library (.so) that your build made");
  const std::string bytes = read_file(path);
  const PluginFile file{path.string(), hash_of(bytes)};
  if (std::ranges::any_of(registries.plugins, [&](const PluginFile& p) { return p.hash == file.hash; })) return;

  expect_whole(bytes, who, kRebuild);
  // Lazily first, since a library of another version may lack symbols.
  expect_abi(open_library(path, RTLD_LAZY, who, kRebuild), who);
  SharedLibrary library = open_library(path, RTLD_NOW, who, kRebuild);
  auto* const plugin = find<void(Registries&)>(library, "foretoken_plugin", who);
  Registries with = registries;
  called(who, "foretoken_plugin()", [&] { plugin(with); });
  Registries result = registries;
  const int added = move_new(with.drafters, result.drafters, file.path) +
                    move_new(with.policies, result.policies, file.path) +
                    move_new(with.verifiers, result.verifiers, file.path);
  if (added == 0)
    throw Error(
        who +
        " registers nothing; call registries.drafters.add, .policies.add or .verifiers.add in foretoken_plugin()");
  result.plugins.push_back(file);
  registries = std::move(result);
  [[maybe_unused]] void* const loaded = library.release();  // its objects' code and vtables must stay loaded
}

}  // namespace foretoken
