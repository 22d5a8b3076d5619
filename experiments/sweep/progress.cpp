#include "experiments/sweep/progress.h"

#include <algorithm>
#include <cstdio>

#include <unistd.h>

#include "experiments/report/terminal.h"

namespace foretoken {
namespace {

std::string clock(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%d:%02d", int(seconds) / 60, int(seconds) % 60);
  return text;
}

}  // namespace

Progress::Progress(std::string title, int total, double kept, bool quiet, std::string units)
    : title_(std::move(title)),
      units_(std::move(units)),
      total_(std::max(total, 1)),
      kept_(kept),
      quiet_(quiet),
      terminal_(isatty(STDERR_FILENO)) {}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (terminal_ && shown_) std::fputs("\r\033[K", stderr);
  shown_ = false;
}

void Progress::show(int done, const std::string& note, double fraction) {
  const auto now = std::chrono::steady_clock::now();
  const double since = std::chrono::duration<double>(now - last_).count();
  if (quiet_ || (terminal_ ? since < 0.1 : (done == last_done_ || (since < 15 && done != total_)))) return;
  last_ = now, last_done_ = done, shown_ = true;
  const double part = std::min(1.0, (done + std::max(fraction, 0.0)) / total_);
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const double worked = total_ * part - kept_;  // runs, in units of one
  const std::string left =
      worked > 0.05 && done < total_ ? clock(elapsed * (1 - part) * total_ / worked) + " left" : "";
  if (!terminal_) {
    std::fprintf(stderr, "%s: %d of %d %s%s%s\n", title_.c_str(), done, total_, units_.c_str(),
                 left.empty() ? "" : ", ", left.c_str());
    return;
  }
  std::string bar;
  for (int i = 0; i < 24; ++i) bar += i < int(part * 24) ? "█" : "░";
  std::fprintf(stderr, "\r\033[K%s", line_of(bar, done, left, note).c_str());
  std::fflush(stderr);
}

// A line wider than the terminal would wrap, and its beginning would not be cleared, so the least informative parts are
// left out.
std::string Progress::line_of(const std::string& bar, int done, const std::string& left,
                              const std::string& note) const {
  const int columns = terminal_columns(STDERR_FILENO), width = columns > 0 ? columns - 1 : 118;
  const std::string figures = std::to_string(done) + "/" + std::to_string(total_) + "  " + left;
  const std::string whole = title_ + " " + bar + " " + figures;
  return cut(display_width(whole) <= width ? whole + "  " + cut(one_line(note), 40) : title_ + " " + figures, width);
}

}  // namespace foretoken
