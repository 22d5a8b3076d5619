#include <fcntl.h>

#include "experiments/program/cli.h"

namespace {

// A file opened while one of the descriptors 0 to 2 is closed gets its number, so standard error could be written into
// the results. Each closed one becomes a null device opened in the wrong direction, which fails as a closed descriptor
// does.
bool occupy_standard_descriptors() {
  for (int number = 0; number <= 2; ++number)
    if (::fcntl(number, F_GETFD) < 0 && ::open("/dev/null", number == 0 ? O_WRONLY : O_RDONLY) != number) return false;
  return true;
}

}  // namespace

int main(int argc, char** argv) { return occupy_standard_descriptors() ? foretoken::run_cli(argc, argv) : 1; }
