// The memory of a model's forwards besides caches: their inputs and logits. It is lent to a user of the model and
// reused afterwards, so that forwards which a device recorded for one engine have the same addresses for the next. This
// module must not know what the inputs are.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/staging.h"

namespace foretoken {

// Forwards of more rows are not worth recording (Backend::replay): a replay saves 2 to 4 % of a forward of 512 rows of
// an 8B model and nothing of one of 2048, and forwards that read prompts, which have all numbers of rows, would push
// those that recur out of what a device keeps.
constexpr int kMostRecordedRows = 512;

struct ForwardMemory {
  ForwardMemory(Backend& b, int memory_number) : backend(b.serial()), number(memory_number), staging(b) {}
  std::uint64_t backend;  // whose it is
  int number;             // in the order in which a model's users asked first
  Staging staging;
  std::vector<Tensor> logits, features;  // f32, of outputs; one without another owner is free
};

// f32 [rows, width] in one of `all` that is free and has room for it; where there is none, in a new one with room for
// as many rows of `most` numbers.
Tensor free_output(Backend& backend, std::vector<Tensor>& all, int rows, std::int64_t width, std::int64_t most);

// Safe from several threads. Lent memory may outlive this object.
class ForwardMemories {
 public:
  // Of the memory that was returned and belongs to this backend the one with the least number, else new memory. Users
  // that ask in the same order thus get what they had, in whatever order they return it.
  std::shared_ptr<ForwardMemory> lend(Backend& backend);

 private:
  struct Idle {
    std::mutex mutex;
    std::vector<std::unique_ptr<ForwardMemory>> memories;  // of one backend
    int made = 0;
  };
  std::shared_ptr<Idle> idle_ = std::make_shared<Idle>();
};

}  // namespace foretoken
