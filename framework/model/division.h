// A model divided among ranks: each has some heads of every attention and some hidden units of every feed-forward
// (Shoeybi et al. 2019, arXiv 1909.08053), or some of the experts. What it lacks is in the sums over ranks behind the
// last product of a sublayer. Norms, routers, the embedding and the head are whole on every rank, so states and logits
// are the same bits on all of them, and whatever reads them (draft heads, kept states) computes as beside a model that
// is whole. This module must not know devices, or what is done with a rank's part.
#pragma once
#include "framework/model/open_model.h"
#include "kernels/rank.h"

namespace foretoken {

struct Division {
  Rank rank;
  int expert =
      1;  // groups of ranks that have different experts; inside a group, each expert's hidden units are divided
};

// The part of one rank. Its source reads only what that has, but for matrices that are rounded when they are loaded,
// which are rounded whole, so that all ranks together have the numbers of the whole model. Sizes that do not divide,
// groups of inputs with one scale that would be cut, and `expert` without experts are an Error.
OpenModel divided(OpenModel model, const Division& division);

}  // namespace foretoken
