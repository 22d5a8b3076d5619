#include "framework/text/grammar/grammar.h"

#include <algorithm>
#include <map>

#include "framework/text/utf8.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

constexpr char32_t kLastPoint = 0x10ffff;
constexpr CodePoints kSurrogates{0xd800, 0xdfff};

std::string utf8_of(char32_t point) {
  std::string bytes;
  append_utf8(bytes, point);
  return bytes;
}

// The parts of a range of code points that surrogates and the borders of UTF-8's lengths divide.
std::vector<CodePoints> of_one_length(const CodePoints& range) {
  std::vector<CodePoints> all;
  for (const CodePoints& length : {CodePoints{0, 0x7f}, CodePoints{0x80, 0x7ff}, CodePoints{0x800, 0xd7ff},
                                   CodePoints{0xe000, 0xffff}, CodePoints{0x10000, kLastPoint}}) {
    const CodePoints cut{std::max(range.first, length.first), std::min(range.last, length.last)};
    if (cut.first <= cut.last) all.push_back(cut);
  }
  return all;
}

constexpr std::size_t kMostParts = 400000;

[[noreturn]] void fail_as_large() {
  throw Error("the response format is too large: more than " + std::to_string(Grammar::kMostNodes) +
              " states; lower its counts of repetitions, or its lengths of strings and arrays");
}

}  // namespace

std::vector<CodePoints> complement(std::vector<CodePoints> ranges) {
  ranges.push_back(kSurrogates);
  std::ranges::sort(ranges, {}, &CodePoints::first);
  std::vector<CodePoints> all;
  char32_t next = 0;
  for (const CodePoints& r : ranges) {
    if (r.first > next) all.push_back({next, r.first - 1});
    next = std::max(next, char32_t(r.last + 1));
  }
  if (next <= kLastPoint) all.push_back({next, kLastPoint});
  return all;
}

Grammar::Part Grammar::add(Expression e) {
  if (expressions_.size() >= kMostParts) fail_as_large();
  expressions_.push_back(std::move(e));
  return Part(expressions_.size() - 1);
}

Grammar::Part Grammar::text(std::string_view bytes) { return add({.kind = Kind::text, .text = std::string(bytes)}); }
Grammar::Part Grammar::sequence(std::vector<Part> parts) {
  return add({.kind = Kind::sequence, .parts = std::move(parts)});
}
Grammar::Part Grammar::choice(std::vector<Part> parts) {
  return add({.kind = Kind::choice, .parts = std::move(parts)});
}
Grammar::Part Grammar::repeat(Part part, int least, int most) {
  return add({.kind = Kind::repeat, .parts = {part}, .least = least, .most = most});
}
Grammar::Part Grammar::bytes(int first, int last) { return add({.kind = Kind::bytes, .least = first, .most = last}); }
Grammar::Part Grammar::rule() { return add({.kind = Kind::rule}); }
void Grammar::define(Part rule, Part as) { expressions_[std::size_t(rule)].parts = {as}; }

Grammar::Part Grammar::character(std::span<const CodePoints> ranges) {
  std::vector<Part> ways;
  for (const CodePoints& r : ranges)
    for (const CodePoints& same : of_one_length(r))
      for (const Part way : characters_of_length(same.first, same.last)) ways.push_back(way);
  return choice(std::move(ways));
}

// Code points of one length as sequences of ranges of bytes. Where the last k bytes of both ends do not cover all
// continuations, the range is cut so that they do.
std::vector<Grammar::Part> Grammar::characters_of_length(char32_t first, char32_t last) {
  for (int k = 1; k <= 3; ++k) {
    const char32_t low = (char32_t(1) << (6 * k)) - 1;  // of the last k bytes
    if (first >> (6 * k) == last >> (6 * k)) break;
    if (utf8_of(first).size() == 1) break;
    char32_t cut = 0;  // where a new range begins
    if ((first & low) != 0)
      cut = (first | low) + 1;
    else if ((last & low) != low)
      cut = last & ~low;
    if (cut == 0) continue;
    std::vector<Part> all = characters_of_length(first, cut - 1);
    for (const Part way : characters_of_length(cut, last)) all.push_back(way);
    return all;
  }
  const std::string from = utf8_of(first), to = utf8_of(last);
  std::vector<Part> parts;
  for (std::size_t i = 0; i < from.size(); ++i) parts.push_back(bytes(std::uint8_t(from[i]), std::uint8_t(to[i])));
  return {sequence(std::move(parts))};
}

// Makes nodes of parts: each between a node that is there and one that it returns.
class Grammar::Builder {
 public:
  explicit Builder(const Grammar& grammar) : grammar_(grammar) {}

  Network network(Part start) {
    made_.start = begin_of(start);
    for (std::size_t i = 0; i < queue_.size(); ++i) {  // rules that a rule calls are added behind it
      const auto [part, begin] = queue_[i];
      const Expression& e = at(part);
      const Part body = e.kind == Kind::rule ? e.parts.at(0) : part;
      const std::int32_t end = build(body, begin);
      made_.ends[std::size_t(end)] = 1;
    }
    return std::move(made_);
  }

 private:
  const Expression& at(Part part) const { return grammar_.expressions_[std::size_t(part)]; }

  std::int32_t node() {
    if (std::int32_t(made_.nodes.size()) >= kMostNodes) fail_as_large();
    made_.nodes.emplace_back(), made_.ends.push_back(0);
    return std::int32_t(made_.nodes.size() - 1);
  }
  void skip(std::int32_t from, std::int32_t to) { made_.nodes[std::size_t(from)].push_back({.to = to}); }
  std::int32_t step(std::int32_t from, std::uint8_t first, std::uint8_t last) {
    const std::int32_t to = node();
    made_.nodes[std::size_t(from)].push_back({.kind = Network::Kind::byte, .first = first, .last = last, .to = to});
    return to;
  }
  std::int32_t begin_of(Part rule) {
    const auto [it, fresh] = begins_.try_emplace(rule, 0);
    if (fresh) it->second = node(), queue_.emplace_back(rule, it->second);
    return it->second;
  }

  std::int32_t build(Part part, std::int32_t from) {
    if (++built_ > 10 * std::int64_t(kMostNodes)) fail_as_large();  // nothing, many times, has no nodes
    const Expression& e = at(part);
    switch (e.kind) {
      case Kind::text:
        for (const char c : e.text) from = step(from, std::uint8_t(c), std::uint8_t(c));
        return from;
      case Kind::bytes:
        return step(from, std::uint8_t(e.least), std::uint8_t(e.most));
      case Kind::sequence:
        for (const Part p : e.parts) from = build(p, from);
        return from;
      case Kind::choice: {
        const std::int32_t to = node();
        for (const Part p : e.parts) {
          const std::int32_t begin = node();  // an alternative that repeats would return into the others
          skip(from, begin), skip(build(p, begin), to);
        }
        return to;
      }
      case Kind::repeat:
        return build_repeat(e, from);
      case Kind::rule:
        break;
    }
    const std::int32_t to = node(), begin = begin_of(part);
    made_.nodes[std::size_t(from)].push_back({.kind = Network::Kind::call, .to = to, .rule = begin});
    return to;
  }

  std::int32_t build_repeat(const Expression& e, std::int32_t from) {
    for (int i = 0; i < e.least; ++i) from = build(e.parts[0], from);
    const std::int32_t to = node();
    if (e.most == kUnbounded) {
      const std::int32_t again = node();
      skip(from, again), skip(build(e.parts[0], again), again), skip(again, to);
      return to;
    }
    for (int i = e.least; i < e.most; ++i) {
      const std::int32_t begin = node();  // as of a choice
      skip(from, to), skip(from, begin), from = build(e.parts[0], begin);
    }
    skip(from, to);
    return to;
  }

  const Grammar& grammar_;
  Network made_;
  std::int64_t built_ = 0;               // parts
  std::map<Part, std::int32_t> begins_;  // of rules
  std::vector<std::pair<Part, std::int32_t>> queue_;
};

namespace {

// Takes away edges behind which no text ends, so that no way that is begun is a dead end. What is used by what it leads
// to, and by what it calls, is met once for each.
void trim(Network& made) {
  const std::size_t n = made.nodes.size();
  std::vector<std::vector<std::int32_t>> before(n);
  for (std::size_t from = 0; from < n; ++from)
    for (const Network::Edge& e : made.nodes[from]) {
      before[std::size_t(e.to)].push_back(std::int32_t(from));
      if (e.kind == Network::Kind::call) before[std::size_t(e.rule)].push_back(std::int32_t(from));
    }
  std::vector<std::uint8_t> ends(made.ends);  // whether a text may end behind a node
  const auto leads = [&](const Network::Edge& e) {
    return ends[std::size_t(e.to)] != 0 && (e.kind != Network::Kind::call || ends[std::size_t(e.rule)] != 0);
  };
  std::vector<std::int32_t> open;
  for (std::size_t i = 0; i < n; ++i)
    if (ends[i] != 0) open.push_back(std::int32_t(i));
  while (!open.empty()) {
    const std::int32_t node = open.back();
    open.pop_back();
    for (const std::int32_t from : before[std::size_t(node)]) {
      if (ends[std::size_t(from)] != 0 || std::ranges::none_of(made.nodes[std::size_t(from)], leads)) continue;
      ends[std::size_t(from)] = 1;
      open.push_back(from);
    }
  }
  for (auto& edges : made.nodes) std::erase_if(edges, [&](const Network::Edge& e) { return !leads(e); });
}

}  // namespace

Network Grammar::network(Part start) const {
  Network made = Builder(*this).network(start);
  trim(made);
  return made;
}

}  // namespace foretoken
