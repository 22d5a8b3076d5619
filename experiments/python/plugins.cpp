#include "experiments/python/plugins.h"

#include <dlfcn.h>

#include "experiments/python/components.h"
#include "kernels/error.h"

namespace foretoken::python {

using Document = nlohmann::ordered_json;

namespace {

// A plugin links no library: what it calls is found among the symbols that the process shows to all. A module of Python
// shows none until it is opened again so.
void show_symbols() {
  Dl_info here{};
  if (::dladdr(reinterpret_cast<const void*>(&show_symbols), &here) != 0 && here.dli_fname &&
      ::dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL))
    return;
  const char* const why = ::dlerror();
  throw Error(std::string("plugins cannot be loaded into this Python (") + (why ? why : "its module was not found") +
              "); run the sweep by the program foretoken");
}

// Whether it is a component from Python. A run that was measured with another of its name is not repeated with this.
bool is_from_python(const Document& plugin) {
  const Document path = plugin.is_object() ? plugin.value("path", Document()) : plugin;
  if (!path.is_string()) return false;
  const std::optional<std::string> hash = hash_from_python(path.get<std::string>());
  if (hash && plugin.is_object() && plugin.contains("hash") && plugin["hash"] != *hash)
    throw Error("'" + path.get<std::string>() + "' is not the one that this run names, whose hash is " +
                plugin["hash"].dump() + ", since its class was written anew or changed; take out the hash to run it " +
                "with the present one");
  return hash.has_value();
}

}  // namespace

Document prepared(Document document) {
  const char* const at = document.is_object() && document.contains("base") ? "/base/plugins" : "/plugins";
  const Document::json_pointer pointer(at);
  if (document.is_object() && document.contains(pointer) && document[pointer].is_array()) {
    Document others = Document::array();
    for (const Document& p : document[pointer])
      if (!is_from_python(p)) others.push_back(p);
    if (!others.empty()) show_symbols();
    document[pointer] = std::move(others);
  }
  return document;
}

}  // namespace foretoken::python
