// Reads a network of rules byte by byte, by states that are made when they are first met: each is a set of places, and
// a place is a node with the rules to which it returns. So nesting has no bound, and a byte that was read once from a
// state costs one look-up. This module must not know tokens.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "framework/text/grammar/grammar.h"

namespace foretoken {

class Automaton {
 public:
  using State = std::int32_t;
  static constexpr State kDead = -1;  // no string that goes on so is in the language

  // Throws Error where a rule calls itself before it has read anything.
  explicit Automaton(Network network);

  State start() const { return 0; }
  // kDead also where there is no room for a new state (refused()).
  State next(State state, std::uint8_t byte) {
    const State known = states_[std::size_t(state)].next[classes_[byte]];
    return known != kUnmade ? known : make(state, classes_[byte]);
  }
  bool accepts(State state) const { return states_[std::size_t(state)].accepts; }
  std::size_t states() const { return states_.size(); }
  // How often there was none: the states are kMostStates, or their places too many.
  std::uint64_t refused() const { return refused_; }
  bool full() const { return refused_ > 0; }
  static constexpr std::size_t kMostStates = 100000;

 private:
  static constexpr State kUnmade = -2;
  struct Place {
    std::int32_t node = 0, stack = 0;
    auto operator<=>(const Place&) const = default;
  };
  using Places = std::vector<Place>;
  struct PlacesHash {
    std::size_t operator()(const Places& places) const;
  };
  struct Made {
    const Places* places = nullptr;
    std::vector<State> next;  // by class of bytes
    bool accepts = false;
  };

  void classify();
  State make(State from, std::uint8_t byte_class);
  State state_of(const Places& begins);
  // The places that read a byte among those that can be reached without one. Whether the language may end there.
  bool close(Places& places);
  std::int32_t pushed(std::int32_t node, std::int32_t stack);
  bool returns_only(std::int32_t node) const;

  Network network_;
  std::array<std::uint8_t, 256> classes_{};
  std::vector<std::uint8_t> representatives_;  // of each class, a byte of it
  std::vector<Made> states_;
  std::unordered_map<Places, State, PlacesHash> known_;
  // Stacks are lists that share their ends: the node to return to, and the stack below it. 0: empty.
  std::vector<Place> stacks_{{}};
  std::map<Place, std::int32_t> stack_ids_;
  std::size_t places_ = 0;  // that were reached so far
  std::uint64_t refused_ = 0;
};

}  // namespace foretoken
