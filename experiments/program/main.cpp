#include <fcntl.h>

#include "experiments/program/cli.h"

namespace {

// Whatever is opened while one of the descriptors 0 to 2 is closed gets its number: what is written to standard error
// would go into the results. A null device opened the other way round fails as a closed descriptor does.
bool occupy_standard_descriptors() {
  for (int number = 0; number <= 2; ++number)
    if (::fcntl(number, F_GETFD) < 0 && ::open("/dev/null", number == 0 ? O_WRONLY : O_RDONLY) != number) return false;
  return true;
}

}  // namespace

int main(int argc, char** argv) { return occupy_standard_descriptors() ? foretoken::run_cli(argc, argv) : 1; }
