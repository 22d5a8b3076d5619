#include "framework/components/kept.h"

#include "kernels/error.h"

namespace foretoken {

std::shared_ptr<const void> Kept::find(const std::string& key, std::type_index type,
                                       const std::function<std::shared_ptr<const void>()>& make) {
  if (const auto it = things_.find(key); it != things_.end()) {
    if (it->second.type != type)
      throw Error("'" + key + "' is kept as another type than it is now asked for; choose another key for Host::keep");
    it->second.used = true;
    return it->second.value;
  }
  std::shared_ptr<const void> value = make();  // may keep something itself
  if (!value) throw Error("what was to be kept as '" + key + "' is nothing; return an object from Host::keep's maker");
  return things_.insert_or_assign(key, Thing{type, std::move(value), true}).first->second.value;
}

void Kept::forget_unused() {
  std::erase_if(things_, [](const auto& entry) { return !entry.second.used; });
  for (auto& [key, thing] : things_) thing.used = false;
}

}  // namespace foretoken
