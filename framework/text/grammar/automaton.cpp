#include "framework/text/grammar/automaton.h"

#include <algorithm>
#include <set>

#include "kernels/error.h"

namespace foretoken {
namespace {

// Reached without a byte: a rule that calls itself first has no end of them. And of all states together, so that a
// hostile pattern costs at most some tenths of a second.
constexpr std::size_t kMostPlaces = 2000, kMostPlacesInAll = 1'000'000;

}  // namespace

std::size_t Automaton::PlacesHash::operator()(const Places& places) const {
  std::uint64_t h = 1469598103934665603u;
  for (const Place& p : places)
    h = (h ^ (std::uint64_t(std::uint32_t(p.node)) << 32 | std::uint32_t(p.stack))) * 1099511628211u;
  return std::size_t(h ^ h >> 29);
}

Automaton::Automaton(Network network) : network_(std::move(network)) {
  classify();
  std::set<std::int32_t> rules{network_.start};
  for (const auto& edges : network_.nodes)
    for (const Network::Edge& e : edges)
      if (e.kind == Network::Kind::call) rules.insert(e.rule);
  for (const std::int32_t rule : rules) {
    Places places{{rule, 0}};
    close(places);
    if (full())
      throw Error(
          "the response format has a rule that refers to itself before it reads anything, or can go on in "
          "more than " +
          std::to_string(kMostPlaces) +
          " ways at once; put something before the reference, or write fewer optional parts one after another");
  }
  if (state_of({{network_.start, 0}}) == kDead)
    throw Error("the response format describes no text at all; see which of its parts excludes everything");
}

// Bytes that no edge distinguishes are one class, so that a state has few transitions.
void Automaton::classify() {
  std::array<std::uint8_t, 257> begins{};  // whether a class begins at a byte
  begins[0] = 1;
  for (const auto& edges : network_.nodes)
    for (const Network::Edge& e : edges)
      if (e.kind == Network::Kind::byte) begins[e.first] = 1, begins[std::size_t(e.last) + 1] = 1;
  for (int b = 0; b < 256; ++b) {
    if (begins[std::size_t(b)] != 0) representatives_.push_back(std::uint8_t(b));
    classes_[std::size_t(b)] = std::uint8_t(representatives_.size() - 1);
  }
}

// A return to such a node would return once more at once: it needs no place in the stack, so that lists by a rule that
// calls itself at its end do not grow it.
bool Automaton::returns_only(std::int32_t node) const {
  for (int steps = 0; steps < 8; ++steps) {
    const auto& edges = network_.nodes[std::size_t(node)];
    if (edges.empty()) return network_.ends[std::size_t(node)] != 0;
    if (network_.ends[std::size_t(node)] != 0 || edges.size() > 1 || edges[0].kind != Network::Kind::skip) return false;
    node = edges[0].to;
  }
  return false;
}

std::int32_t Automaton::pushed(std::int32_t node, std::int32_t stack) {
  if (returns_only(node)) return stack;
  const auto [it, fresh] = stack_ids_.try_emplace(Place{node, stack}, std::int32_t(stacks_.size()));
  if (fresh) stacks_.push_back({node, stack});
  return it->second;
}

bool Automaton::close(Places& places) {
  bool accepts = false;
  std::set<Place> seen(places.begin(), places.end());
  Places open(std::move(places)), reading;
  const auto reach = [&](const Place& p) {
    if (seen.insert(p).second) open.push_back(p);
  };
  while (!open.empty()) {
    const Place p = open.back();
    open.pop_back();
    if (seen.size() > kMostPlaces || ++places_ > kMostPlacesInAll) {
      ++refused_;
      break;
    }
    bool reads = false;
    for (const Network::Edge& e : network_.nodes[std::size_t(p.node)]) {
      if (e.kind == Network::Kind::byte)
        reads = true;
      else if (e.kind == Network::Kind::skip)
        reach({e.to, p.stack});
      else
        reach({e.rule, pushed(e.to, p.stack)});
    }
    if (reads) reading.push_back(p);
    if (network_.ends[std::size_t(p.node)] == 0) continue;
    if (p.stack == 0)
      accepts = true;
    else
      reach(stacks_[std::size_t(p.stack)]);
  }
  std::ranges::sort(reading);
  places = std::move(reading);
  return accepts;
}

Automaton::State Automaton::state_of(const Places& begins) {
  const std::uint64_t refused = refused_;
  Places places = begins;
  const bool accepts = close(places);
  if (refused_ != refused || (places.empty() && !accepts)) return kDead;
  // Places that read nothing differ by whether the language may end: so does the state.
  if (accepts) places.push_back({-1, -1});
  const auto known = known_.find(places);
  if (known != known_.end()) return known->second;
  if (states_.size() >= kMostStates) {
    ++refused_;
    return kDead;
  }
  const auto [it, fresh] = known_.emplace(std::move(places), State(states_.size()));
  states_.push_back({&it->first, std::vector<State>(representatives_.size(), kUnmade), accepts});
  return it->second;
}

Automaton::State Automaton::make(State from, std::uint8_t byte_class) {
  const std::uint8_t byte = representatives_[byte_class];
  Places begins;
  for (const Place& p : *states_[std::size_t(from)].places) {
    if (p.node < 0) continue;
    for (const Network::Edge& e : network_.nodes[std::size_t(p.node)])
      if (e.kind == Network::Kind::byte && e.first <= byte && byte <= e.last) begins.push_back({e.to, p.stack});
  }
  std::ranges::sort(begins);
  begins.erase(std::ranges::unique(begins).begin(), begins.end());
  const std::uint64_t refused = refused_;
  const State made = begins.empty() ? kDead : state_of(begins);
  if (refused_ == refused)
    states_[std::size_t(from)].next[byte_class] = made;  // what there was no room for is not dead
  return made;
}

}  // namespace foretoken
