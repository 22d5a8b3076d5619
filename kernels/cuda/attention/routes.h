// What the CUDA backend plans for a call of attend(), for tests that compare one route with another: where the driver
// refuses to describe pages, a call takes another route without a word. This header must not know kernels.
#pragma once
#include "kernels/backend.h"
#include "kernels/layout.h"

namespace foretoken {

enum class AttendRoute { plain, coded_stream, prompt, coded_tiles, tiles };
struct AttendPlan {
  AttendRoute route = AttendRoute::plain;
  int splits = 1;  // blocks that share a context; 1: chunks are folded in registers
};
// Of attend() of rows that go into one call. `cuda`: a CUDA backend; queries, keys and the layout are in its memory.
AttendPlan attend_plan(const Backend& cuda, const Tensor& q, const KvLayer& kv, const Layout& layout);

struct CodedStreamPlan {
  int architecture = 0;  // the GPU's, as in 90: the coded stream needs 90
  bool taken = false;    // the rest is set only then
  int splits = 1;        // as above
  int stages = 0;        // of the ring, each a step of 64 depths
};
// The same of rows without trees.
CodedStreamPlan coded_stream_plan(const Backend& cuda, const Tensor& q, const KvLayer& kv, const Layout& layout);

}  // namespace foretoken
