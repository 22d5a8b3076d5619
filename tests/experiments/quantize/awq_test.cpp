// Where AWQ cuts a group: at the widest group that it cuts, and no wider. And what a device that tells passes on.
#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

#include <gtest/gtest.h>

#include "experiments/quantize/calibration.h"
#include "experiments/quantize/method.h"
#include "experiments/quantize/scaling.h"
#include "kernels/cpu/cpu_backend.h"

namespace foretoken::test {
namespace {

// One output whose greatest weight meets an input that is always 0: cutting it costs nothing and makes the steps of the
// other weights finer.
bool is_cut(std::int64_t inputs) {
  const auto host = make_cpu_backend(1);
  const Tensor w = Tensor::host({1, inputs}, DType::f32), x = Tensor::host({4, inputs}, DType::f32);
  for (std::int64_t i = 0; i < inputs; ++i) {
    w.data<float>()[i] = i == 0 ? 1.0f : 0.5f * float(i * 37 % 101) / 101 - 0.25f;
    for (std::int64_t r = 0; r < 4; ++r) x.row<float>(r)[i] = i == 0 ? 0.0f : float((i + 7 * r) * 53 % 89) / 89 - 0.5f;
  }
  const WeightFormat& format = *find_format("int8");  // a scale for each output
  const Weight dense = Weight::dense(w), rounded = awq_rounded(*host, dense, format, x),
               whole = quantize(dense, format);
  EXPECT_EQ(whole.group, inputs);
  return std::memcmp(rounded.scales.raw(), whole.scales.raw(), sizeof(float)) != 0;
}

TEST(AwqRounded, CutsGroupsOfAtMost512Inputs) {
  EXPECT_TRUE(is_cut(511));
  EXPECT_TRUE(is_cut(512));
  EXPECT_FALSE(is_cut(513));
}

// What a checkpoint that is written in parts belongs to. Without a text there is nothing but the method: a folder that
// was named by nobody has no part in it.
TEST(QuantizationJob, IsWhatTheCodesDependOn) {
  MethodOptions o;
  EXPECT_EQ(job_of(o), nlohmann::json({{"method", "rtn"}}));
  o.name = "gptq", o.calibrate = "experiments/prompts.jsonl";
  nlohmann::json job = job_of(o);
  EXPECT_TRUE(job["calibrate"].get<std::string>().starts_with("xxh3:"));
  job.erase("calibrate");
  EXPECT_EQ(job,
            nlohmann::json(
                {{"method", "gptq"}, {"tokens", 8192}, {"alpha", nullptr}, {"act_order", false}, {"device", "auto"}}));
  o.tokens = 7, o.alpha = 0.25, o.act_order = true, o.device = "cpu";
  job = job_of(o), job.erase("calibrate");
  EXPECT_EQ(job, nlohmann::json(
                     {{"method", "gptq"}, {"tokens", 7}, {"alpha", 0.25}, {"act_order", true}, {"device", "cpu"}}));
}

Tensor numbers(Shape shape, int seed = 1) {
  const Tensor t = Tensor::host(shape, DType::f32);
  for (std::int64_t i = 0; i < t.elements(); ++i) t.data<float>()[i] = float((i * 31 + seed * 17) % 23) / 8 - 1;
  return t;
}

template <class T> Tensor host(const std::vector<T>& values, DType dtype) {
  return Tensor::host_copy(std::span<const T>(values), dtype);
}

using Operation = std::function<Tensor(Backend&)>;

using Operations = std::vector<std::pair<std::string, Operation>>;

Tensor zeros(Shape shape, DType dtype) {
  const Tensor t = Tensor::host(shape, dtype);
  std::memset(t.raw(), 0, std::size_t(t.bytes()));
  return t;
}

template <class F> Tensor changed(const Tensor& t, const F& change) { return change(t), t; }

// Operations on tokens and their distributions, each by its result.
Operations operations_on_tokens() {
  static const Tensor row = numbers({1, 4}, 5);
  return {
      {"rank",
       [](Backend& b) {
         const Distributions p = b.distributions(numbers({1, 6}), std::vector{Warp{.temperature = 1}});
         return changed(zeros({1, 2}, DType::i32), [&](Tensor t) { b.rank(p, 2, t, zeros({1, 2}, DType::f32)); });
       }},
      {"draw",
       [](Backend& b) {
         const Distributions p = b.distributions(numbers({1, 6}), std::vector{Warp{.temperature = 0}});
         return changed(zeros({1}, DType::i32), [&](Tensor t) { b.draw(p, std::vector<TokenDraw>(1), t); });
       }},
      {"pick",
       [](Backend& b) {
         const Tensor known = host<std::int32_t>({7}, DType::i32), at = host<std::uint64_t>({0}, DType::u64);
         return changed(zeros({1}, DType::i32), [&](Tensor t) { b.pick(known, at, t, 9); });
       }},
      {"recall",
       [](Backend& b) {
         const Tensor at =
             host<std::uint64_t>({std::uint64_t(reinterpret_cast<std::uintptr_t>(row.raw()))}, DType::u64);
         return changed(zeros({1, 4}, DType::f32), [&](Tensor t) { b.recall(at, t, t.dtype()); });
       }},
      {"spread",
       [](Backend& b) {
         const Tensor ids = host<std::int32_t>({2, 0, 5, 3}, DType::i32);
         return changed(zeros({1, 6}, DType::f32), [&](Tensor t) { b.spread(row, ids, t); });
       }},
      {"translate",
       [](Backend& b) {
         return b.translate(host<std::int32_t>({2, -1}, DType::i32), host<std::int32_t>({5, 6, 7}, DType::i32));
       }},
  };
}

// Operations in memory, each by its result.
Operations operations() {
  return {
      {"copy",
       [](Backend& b) { return changed(zeros({2, 3}, DType::f32), [&](Tensor t) { b.copy(numbers({2, 3}), t); }); }},
      {"fetch",
       [](Backend& b) { return changed(zeros({2, 3}, DType::f32), [&](Tensor t) { b.fetch(numbers({2, 3}), t); }); }},
      {"rms_norm", [](Backend& b) { return b.rms_norm(numbers({2, 8}), numbers({8}, 3), 1e-5f); }},
      {"head_norm",
       [](Backend& b) { return changed(numbers({2, 8}), [&](Tensor t) { b.head_norm(t, numbers({4}, 3), 1e-5f); }); }},
      {"silu_mul", [](Backend& b) { return b.silu_mul(numbers({2, 8})); }},
      {"silu_add",
       [](Backend& b) { return changed(numbers({2, 8}), [&](Tensor t) { b.silu_add(t, numbers({2, 4}, 2)); }); }},
      {"add", [](Backend& b) { return changed(numbers({2, 8}), [&](Tensor t) { b.add(t, numbers({2, 8}, 2)); }); }},
      {"gather", [](Backend& b) { return b.gather(numbers({3, 4}), host<std::int32_t>({2, 0}, DType::i32)); }},
      {"embed",
       [](Backend& b) {
         return b.embed(b.prepare(Weight::dense(numbers({5, 4}))), host<std::int32_t>({3, 1}, DType::i32));
       }},
      {"linear", [](Backend& b) { return b.linear(numbers({2, 4}), b.prepare(Weight::dense(numbers({3, 4}, 2)))); }},
  };
}

// It does what the device does, and tells of products alone.
TEST(ObservingBackend, DoesWhatItsDeviceDoes) {
  const auto device = make_cpu_backend(1);
  Operations all = operations();
  std::ranges::move(operations_on_tokens(), std::back_inserter(all));
  for (const auto& [name, operation] : all) {
    int told = 0;
    ObservingBackend observing(*device, [&](const Tensor&) { ++told; });
    const Tensor want = operation(*device), found = operation(observing);
    ASSERT_EQ(found.shape(), want.shape()) << name;
    EXPECT_EQ(std::memcmp(found.raw(), want.raw(), std::size_t(want.bytes())), 0) << name;
    const auto bytes = std::span(static_cast<const char*>(want.raw()), std::size_t(want.bytes()));
    EXPECT_TRUE(std::ranges::any_of(bytes, [](char c) { return c != 0; })) << name << ": a case that shows something";
    EXPECT_EQ(told, name == "linear") << name;
  }
  ObservingBackend observing(*device, {});
  EXPECT_EQ(observing.name(), device->name());
  EXPECT_EQ(observing.description(), device->description());
  EXPECT_EQ(observing.padded(13), device->padded(13));
  int sum = 0;
  observing.for_each(5, [&](int i) { sum += i; });
  EXPECT_EQ(sum, 10);
}

}  // namespace
}  // namespace foretoken::test
