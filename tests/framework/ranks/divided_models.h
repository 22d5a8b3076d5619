// Tiny checkpoints divided among ranks, and engines of them.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "framework/engine/engine.h"
#include "framework/model/division.h"
#include "framework/model/model_files.h"
#include "framework/model/transformer.h"
#include "kernels/reference/reference_backend.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {

// `name`: below tests/data/models, or a path below tests/data.
inline OpenModel opened_tiny(const std::string& name, const std::string& dtype = "auto") {
  const auto data = std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests/data";
  const auto files = ModelFiles::open(name.find('/') == std::string::npos ? data / "models" / name : data / name);
  return {files->config(), files->tensors(), dtype};
}

inline std::shared_ptr<Model> loaded_tiny(Backend& backend, const OpenModel& open, const std::string& name) {
  return std::make_shared<Transformer>(backend, open.config, *open.tensors, name, 0,
                                       TransformerOptions{.dtype = open.dtype, .kv_dtype = "f32"});
}

// So that what learns from times does the same again. Rank 0's clock ticks evenly, the others' do not.
inline void let_tick(Backend& backend, int rank) {
  backend.set_clock([now = 0.0, rank, looks = 0]() mutable { return now += (1 + rank * (looks++ % 5)) * 0x1p-10; });
}

using MakeHost = std::function<std::unique_ptr<HostBackend>()>;
inline std::unique_ptr<HostBackend> reference() { return std::make_unique<ReferenceBackend>(); }
inline std::unique_ptr<HostBackend> one_thread() { return cpu_backend(1); }

// A device and the models of each rank, and the engines of rank 0 that others follow. Each rank has another clock.
class RankedModels {
 public:
  struct Choice {
    std::string target;
    int ranks = 2, expert = 1;
    MakeHost make = reference;
    std::optional<OpenModel> open = {};  // in place of the tiny checkpoint
  };
  explicit RankedModels(const Choice& choice) : threads_(std::make_shared<RankThreads>(choice.ranks)) {
    for (int r = 0; r < choice.ranks; ++r) {
      backends_.push_back(choice.make());
      let_tick(*backends_.back(), r);
      Models models = tiny_models(*backends_.back(), {.target = choice.target});
      const Division division{{threads_->group(), r}, choice.expert};
      models.target = loaded_tiny(*backends_.back(),
                                  divided(choice.open.value_or(opened_tiny(choice.target)), division), choice.target);
      models_.push_back(std::move(models));
    }
  }

  std::unique_ptr<Engine> engine(const Subject& subject, const EngineOptions& options) {
    const auto make = [&](int r) {
      const Models& m = models_[std::size_t(r)];
      return std::make_unique<Engine>(*backends_[std::size_t(r)], m.target, subject.registries, subject.configs,
                                      options, m.load);
    };
    auto others = std::make_unique<OtherRanks>(threads_, make);
    auto engine = others->beside([](Engine&) {}, [&] { return make(0); });
    others->expect_made();
    engine->lead(std::move(others));
    return engine;
  }

  // f(rank) on the thread of each rank at once.
  template <class F> void on_each(const F& f) {
    threads_->each(f);
    f(0);
    threads_->wait();
    threads_->group()->expect_whole();
  }
  RankGroup& group() { return *threads_->group(); }
  HostBackend& backend(int rank) { return *backends_[std::size_t(rank)]; }
  const Models& models(int rank) const { return models_[std::size_t(rank)]; }

 private:
  std::shared_ptr<RankThreads> threads_;
  std::vector<std::unique_ptr<HostBackend>> backends_;
  std::vector<Models> models_;
};

// What an engine makes of some requests.
struct Decoded {
  std::vector<Tokens> outputs;
  long rounds = 0, drafted = 0, accepted = 0;
  bool operator==(const Decoded&) const = default;
};
inline void PrintTo(const Decoded& d, std::ostream* to) {
  *to << ::testing::PrintToString(d.outputs) << " in " << d.rounds << " rounds, " << d.accepted << " of " << d.drafted
      << " accepted";
}

inline Request request_of(const TestRequest& r, const Sampling& sampling) {
  Request request;
  request.prompt = r.prompt;
  request.limits.max_new_tokens = r.max_new_tokens;
  request.sampling = sampling;
  request.stream = r.stream;
  return request;
}

inline Decoded decoded(Engine& engine, std::span<const TestRequest> requests, const Sampling& sampling) {
  Decoded all;
  std::vector<SequenceId> ids;
  for (const TestRequest& r : requests) ids.push_back(engine.submit(request_of(r, sampling)));
  all.outputs.resize(ids.size());
  while (!engine.idle()) {
    const StepReport report = without_failures(engine.step());
    for (const SequenceReport& s : report.sequences)
      all.rounds += s.judged, all.drafted += s.drafted, all.accepted += s.accepted;
    for (const Sequence& s : report.finished)
      all.outputs[std::size_t(std::ranges::find(ids, s.id) - ids.begin())] = {s.tokens.begin() + s.prompt_length,
                                                                              s.tokens.end()};
  }
  return all;
}

}  // namespace foretoken::test
