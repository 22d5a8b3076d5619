// The requests that a run serves, and those that warm it up. This module must not know how they are measured.
#pragma once
#include <filesystem>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/session/workbench.h"
#include "experiments/sweep/measure.h"

namespace foretoken {

constexpr std::size_t kRequestsASlot = 6;  // of the batch, so that slots are full for most of the time

// The requests of a complete run: its prompts, each with its samples, as often as /workload/repeats says (with other
// sample numbers, so other draws). Of a conversation as many turns as /workload/turns says. The prompts are
// /workload/limit of the file's, but at least as many as six requests for each slot of the batch need; fewer are an
// Error. With /workload/prompt_tokens every prompt has so many tokens, its chat form included: it is cut, or further
// prompts of the workload follow it. With "drawn" lengths every request ends after a
// number of tokens between half of max_new_tokens and all of them, which depends on its prompt and repeat alone:
// requests of equal lengths would end, and read prompts, all at once.
std::vector<Job> jobs_of(const nlohmann::json& run, Workbench& bench, const std::filesystem::path& beside);

// What a run serves before it is measured with `jobs`, by the state that it is measured from. Warm: the same requests
// with other draws, so that what learns has seen its prompts, and answers to them, but not the draws of the
// measurement. Others: the prompts that /workload/skip leaves out, once; two equal prompts among these and `jobs` are
// an Error. Else nothing.
std::vector<Job> jobs_before(const nlohmann::json& run, const std::vector<Job>& jobs, Workbench& bench,
                             const std::filesystem::path& beside);

// The warm-up requests, served before a run is measured: its first ones (of conversations the first turns), two for
// each slot, shortened. They end one after another and others start, so every batch size (above 16: sizes close
// together) and mixes of prompts and decoding occur, if the run has enough requests. A device may time its
// implementations of a product when it first gets a number of rows.
std::vector<Job> warm_up_jobs(std::vector<Job> jobs, std::size_t batch);

}  // namespace foretoken
