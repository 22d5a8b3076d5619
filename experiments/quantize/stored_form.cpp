#include "experiments/quantize/stored_form.h"

#include "framework/text/known_names.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

const std::map<std::string, const StoredForm*>& forms() {
  static const std::map<std::string, const StoredForm*> all = [] {
    std::map<std::string, const StoredForm*> found = stored::compressed_tensors();
    found.insert(stored::bitsandbytes().begin(), stored::bitsandbytes().end());
    return found;
  }();
  return all;
}

}  // namespace

std::vector<std::string> storable_formats() {
  std::vector<std::string> names;
  for (const WeightFormat* f : weight_formats())
    if (forms().contains(f->name())) names.push_back(f->name());
  return names;
}

const StoredForm& stored_form(const std::string& format) {
  const auto found = forms().find(format);
  if (found != forms().end() && find_format(format)) return *found->second;
  unknown_name("format", format, storable_formats());
}

}  // namespace foretoken
