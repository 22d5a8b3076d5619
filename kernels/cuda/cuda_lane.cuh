// The Lane of the CUDA device: a cluster of thread blocks for each sequence, the whole batch in one launch. Included by
// kernels/lane.h where nvcc compiles, so that a verifier's template becomes a kernel. Knows laws and draws, no verifier.
#pragma once
#include "kernels/backend.h"
#include "kernels/error.h"
#include "kernels/residual.h"

namespace foretoken {

template <class F> void launch_on_device(Backend&, int, const Draws*, int, const F&) {
  throw Error("device cuda: the CUDA backend is not there yet; use \"device\": \"cpu\"");
}

}  // namespace foretoken
