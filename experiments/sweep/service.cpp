#include "experiments/sweep/service.h"

#include "experiments/sweep/clock.h"

namespace foretoken {

using nlohmann::json;

json to_json(const Job& job, const Service& s) {
  json request = {{"prompt", job.prompt},
                  {"turn", job.turn},
                  {"category", job.category.empty() ? json() : json(job.category)},
                  {"prompt_tokens", s.prompt_tokens},
                  {"tokens", s.tokens},
                  {"first_tokens", s.first_tokens},
                  {"seconds", seconds(s.finished - s.submitted)},
                  {"share_seconds", s.share},
                  {"decode_seconds", seconds(s.finished - s.first)},
                  {"ttft", seconds(s.first - s.submitted)},
                  {"rounds", s.rounds},
                  {"drafted", s.drafted},
                  {"tested", s.tested},
                  {"accepted", s.accepted},
                  {"tested_at", s.tested_at},
                  {"accepted_at", s.accepted_at},
                  {"steady_tokens", s.steady_tokens},
                  {"steady_seconds", s.steady_share},
                  {"finish", name_of(s.finish)}};
  if (s.log_probability) request["log_probability"] = *s.log_probability;
  if (s.finish == Finish::failed) request["failure"] = s.failure;
  return request;
}

}  // namespace foretoken
