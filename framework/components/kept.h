// What components keep beyond one engine: heads, datastores and whatever else is expensive to make and the same for
// every engine of a sweep. This module must not know what is kept.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <typeindex>

namespace foretoken {

class Kept {
 public:
  // What `make` made when `key` was first asked for. A key that holds another type, or a `make` that gives nothing, is
  // an Error.
  std::shared_ptr<const void> find(const std::string& key, std::type_index type,
                                   const std::function<std::shared_ptr<const void>()>& make);
  // Lets go of what nothing has asked for since the last call.
  void forget_unused();

 private:
  struct Thing {
    std::type_index type;
    std::shared_ptr<const void> value;
    bool used;
  };
  std::map<std::string, Thing> things_;
};

}  // namespace foretoken
