// The second table of `foretoken bench`: whole steps of the demo pair, a long attention and a prompt on the cpu device,
// each with its roofline on this machine and the bar that the project requires. This module must not know how any
// operation is computed.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace foretoken {

// One measurement. roofline = max(bytes / bandwidth, operations / peak), both measured in the same alternation.
struct Bar {
  std::string name;
  double bytes = 0, operations = 0;  // of what was timed; 0: not relevant to the bar
  double seconds = 0, roofline = 0;  // medians; roofline 0: none
  double figure = 0;
  std::string unit;  // of the figure
  double bar = 0;
  bool at_most = false;  // else `figure` must be at least `bar`

  bool met() const { return at_most ? figure <= bar : figure >= bar; }
};

// Every line is measured `repeats` times, in alternation with all others and with the machine's bandwidth and peak.
std::vector<Bar> measure_bars(int threads, int repeats);

void print_bars(const std::vector<Bar>& bars);
nlohmann::json as_json(const std::vector<Bar>& bars);

}  // namespace foretoken
