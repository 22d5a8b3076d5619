// For a plugin with a draft head on hidden states of the target: `#include <foretoken/heads.h>` in place of
// <foretoken/plugin.h>. It writes what the head computes and gets the rest from here: the options "head" and "dtype",
// how a tree of its drafts grows (a chain, a fixed shape, or by probability), and rounds on the target's states.
#pragma once

#include <foretoken/plugin.h>

// Tensors of a checkpoint, brought to the device.
#include "framework/model/checkpoint.h"
#include "framework/model/weight_loader.h"

// The entry of a drafter with a head; what its files say, and random ones for tests.
#include "drafters/heads/head_config.h"
#include "drafters/heads/head_entry.h"

// Rounds of a head that has no cache. A head with one is a Model (framework/model/model.h) in a RoundModel.
#include "drafters/heads/state_round.h"
