// What filters sort, group and compare items by: the item itself, or an attribute with dots, where wanted without case.
#pragma once
#include <vector>

#include "framework/text/jinja/run.h"

namespace foretoken::jinja {

class ItemKey {
 public:
  // `attribute`: a text, a number, or null for the item itself. `exact`: case counts. `otherwise` stands for an
  // attribute that is missing.
  ItemKey(Run& run, const Value* attribute, bool exact, const Value* otherwise = nullptr);
  // Of attributes with commas between them.
  static std::vector<ItemKey> several(Run& run, const Value* attribute, bool exact);

  Value of(Value item) const;
  Items keys(const Items& items) const;

 private:
  Run* run_;
  bool exact_;
  Value otherwise_;
  Items parts_;
};

}  // namespace foretoken::jinja
