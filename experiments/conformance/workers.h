// Numbered tasks in processes of their own, so that code which crashes, exits or never ends takes one task with it and
// not the report on the others. The caller's process sets up nothing and runs no task, and must not have used a GPU:
// its context would not survive the fork. What workers print goes to standard error. A second is one of a processor, so
// that what else runs on the machine decides nothing; of a process that waits, four seconds of the clock. This module
// must not know what a task is.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace foretoken::conformance {

// What a worker process has set up.
struct Service {
  std::string greeting;                            // one line: what the caller must know
  std::function<std::string(std::size_t)> answer;  // to a task: one line
};

struct Answer {
  std::size_t task = 0;
  std::string text;     // the service's, unless:
  std::string failure;  // "its process ended with signal 11 (Segmentation fault); its last line: ..."
  bool late = false;    // it was stopped, since it did not end in time
  double seconds = 0;   // that it took
};

class Workers {
 public:
  // So many processes, each of which sets up its own service. Setting up and each task may take `longest` seconds.
  Workers(int processes, double longest, std::function<Service()> set_up);
  ~Workers();  // ends the processes

  // That of the first process. An Error: what setting up threw, or how the process ended.
  std::string greeting();
  // Starts the tasks 0, 1, ... in order as long as `go_on`, and waits for those that started. A process that ends is
  // replaced.
  void run(std::size_t tasks, const std::function<bool()>& go_on, const std::function<void(const Answer&)>& take);

 private:
  struct Process;
  void start(Process& p);
  void give(Process& p, std::size_t task);
  void wait();
  void read(Process& p, const std::function<void(const Answer&)>& take);
  void end(Process& p, bool late, const std::function<void(const Answer&)>& take);

  double longest_;
  std::function<Service()> set_up_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::string greeting_, failure_;  // of setting up
};

// Whether this process is a worker.
bool is_worker();

}  // namespace foretoken::conformance
