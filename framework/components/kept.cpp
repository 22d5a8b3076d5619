#include "framework/components/kept.h"

#include "kernels/error.h"

namespace foretoken {

std::shared_ptr<const void> Kept::find(const std::string& key, std::type_index type,
                                       const std::function<std::shared_ptr<const void>()>& make) {
  const std::lock_guard lock(mutex_);
  if (const auto it = objects_.find(key); it != objects_.end()) {
    if (it->second.type != type)
      throw Error("'" + key + "' is kept as another type than is now requested; choose another key for Host::keep");
    it->second.used = true;
    return it->second.value;
  }
  std::shared_ptr<const void> value = make();  // may call find() itself
  if (!value) throw Error("the maker of '" + key + "' returned null; return an object from Host::keep's maker");
  return objects_.insert_or_assign(key, Object{type, std::move(value), true}).first->second.value;
}

void Kept::forget_unused() {
  const std::lock_guard lock(mutex_);
  std::erase_if(objects_, [](const auto& entry) { return !entry.second.used; });
  for (auto& [key, object] : objects_) object.used = false;
}

}  // namespace foretoken
