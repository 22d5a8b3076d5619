// Objects that components share between engines: heads, datastores and others that are expensive to make and the same
// for every engine of a sweep. Engines of several threads may share them; an object that changes locks itself. What is
// learned from requests does not belong here: a measurement would begin with what others left. This module must not
// know what the objects are.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <typeindex>

namespace foretoken {

class Kept {
 public:
  // The object of `key`; at the first call with this key it is made by `make`. A key whose object has another type, or
  // a `make` that returns null, is an Error.
  std::shared_ptr<const void> find(const std::string& key, std::type_index type,
                                   const std::function<std::shared_ptr<const void>()>& make);
  // Releases the objects that were not requested since the last call.
  void forget_unused();

 private:
  struct Object {
    std::type_index type;
    std::shared_ptr<const void> value;
    bool used;
  };
  std::recursive_mutex mutex_;  // what is made may ask for others
  std::map<std::string, Object> objects_;
};

}  // namespace foretoken
