#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "experiments/bench/bench.h"
#include "experiments/bench/bench_steps.h"
#include "framework/model/decoder_layer.h"
#include "kernels/error.h"
#include "kernels/time_of.h"

namespace foretoken {
namespace {

constexpr int kInputs = 256;                        // inputs of the product that makes the rows
constexpr double kOutOfCaches = double(512 << 20);  // bytes
constexpr int kMostLayers = 16;

Tensor random_bf16(Shape shape, float scale) {
  const Tensor t = Tensor::host(shape, DType::bf16);
  std::minstd_rand engine(7);
  for (bf16& v : t.values<bf16>()) v = bf16((float(engine() % 1024) / 512 - 1) * scale);
  return t;
}

// Pages of all layers, filled with numbers, and a table for each sequence, with pages scattered as in a long-used pool.
struct Pages {
  std::vector<KvLayer> layers;
  Tensor tables;

  Pages(Backend& b, const AttentionLoad& load, int count) {
    const int width = (load.context + kPageRows - 1) / kPageRows;
    const KvShape shape(std::vector<LayerShape>(std::size_t(count), load.layer));
    const std::int64_t page = shape.page_bytes(kPageRows), bytes = page * width * load.batch;
    const Tensor pool = b.allocate({std::int64_t(width) * load.batch, page}, DType::u8), flat = pool.reshaped({bytes});
    const Tensor halves = random_bf16({std::min<std::int64_t>(bytes, 8 << 20) / 2}, 1),
                 numbers(halves.owner(), halves.raw(), {halves.bytes()}, DType::u8);
    const Tensor there = b.upload(numbers);
    for (std::int64_t at = 0; at < bytes; at += numbers.dim(0)) {
      const std::int64_t n = std::min(numbers.dim(0), bytes - at);
      b.copy(there.rows(0, n), flat.rows(at, n));
    }
    layers = shape.in_pages(pool, kPageRows);
    tables = Tensor::host({load.batch, width}, DType::i32);
    std::iota(tables.data<std::int32_t>(), tables.data<std::int32_t>() + tables.elements(), 0);
    std::shuffle(tables.data<std::int32_t>(), tables.data<std::int32_t>() + tables.elements(), std::mt19937(1));
  }
};

Layout layout_of(Backend& b, const AttentionLoad& load, const Tensor& tables) {
  Layout l;
  l.rows = load.batch * load.rows, l.sequences = load.batch, l.table_width = int(tables.dim(1)),
  l.deepest = load.context, l.longest = load.rows;
  std::vector<std::int32_t> slots, owner, visible, begins;
  for (int s = 0; s < load.batch; ++s) {
    begins.push_back(s * load.rows);
    for (int r = 0; r < load.rows; ++r)
      slots.push_back(load.context - load.rows + r), owner.push_back(s), visible.push_back(slots.back() + 1);
  }
  begins.push_back(l.rows);
  const auto there = [&](const std::vector<std::int32_t>& v) {
    return b.upload(Tensor::host_copy(std::span<const std::int32_t>(v), DType::i32));
  };
  l.positions = l.slots = there(slots), l.owner = there(owner), l.visible = there(visible), l.begins = there(begins),
  l.tables = b.upload(tables);
  return l;
}

// Queries, keys and values as a layer's product writes them, in the device's type of activations.
Tensor rows_of(Backend& b, const ModelConfig& m, int rows) {
  const Tensor x = Tensor::host({rows, kInputs}, DType::f32), gain = Tensor::host({kInputs}, DType::f32);
  for (std::int64_t i = 0; i < x.elements(); ++i)
    x.data<float>()[i] = float(i * 2654435761u >> 8 & 0xffff) / 65536 - 0.5f;
  std::fill_n(gain.data<float>(), kInputs, 1.0f);
  const Weight w = b.prepare(
      Weight::dense(b.upload(random_bf16({std::int64_t(m.heads + 2 * m.kv_heads) * m.head_size, kInputs}, 0.1f))));
  return b.norm_linear(b.upload(x), b.upload(gain), 1e-5f, w);
}

}  // namespace

double AttentionLoad::bytes() const { return double(batch) * context * double(layer.bytes_per_row()); }

double attention_seconds(Backend& b, const ModelConfig& m, const AttentionLoad& load, int repeats) {
  constexpr int kWarmUp = 3;  // one recorded, two replayed
  static std::int64_t runs = 0;
  if (m.latent)
    throw Error("attention alone: that on latents (" + m.architecture + ") is not measured; give another model");
  if (load.rows > load.context)
    throw Error("attention alone: " + std::to_string(load.rows) + " rows do not fit into a context of " +
                std::to_string(load.context) + "; give a longer context");
  const int layers = int(std::clamp(std::ceil(kOutOfCaches / load.bytes()), 1.0, double(kMostLayers)));
  const Pages pages(b, load, layers);
  const Layout layout = layout_of(b, load, pages.tables);
  const Tensor rows = rows_of(b, m, layout.rows);
  const RotaryRules rotation = rotation_of(b, m);
  const AttentionRules rules = attention_rules(m);
  const std::int64_t q = std::int64_t(m.heads) * m.head_size, kv = std::int64_t(m.kv_heads) * m.head_size,
                     key[] = {-1, ++runs};
  const auto body = [&] {
    for (const KvLayer& layer : pages.layers)
      b.rope_attend(rows.columns(0, q), rows.columns(q, kv), rows.columns(q + kv, kv), layer, layout, rotation, rules);
  };
  for (int i = 0; i < kWarmUp; ++i) b.replay(key, body);
  return time_of(b, repeats, [&] { b.replay(key, body); }) / layers;
}

namespace {

constexpr int kMoved = kPageRows / 2;  // rows that move within a page, from its second half to its first

// The rows of every block table that call number `turn` moves, in the order of the tables.
std::vector<std::vector<Moves::Row>> rows_of(const CompactionLoad& load, const std::vector<std::int32_t>& pages,
                                             int touched, int turn) {
  const int width = int(pages.size()) / load.batch;
  std::vector<std::vector<Moves::Row>> rows(std::size_t(load.batch));
  for (int s = 0; s < load.batch; ++s)
    for (int r = 0; r < load.rows; ++r) {
      const std::int32_t page = pages[std::size_t(s * width + (turn * touched + r / kMoved) % width)];
      rows[std::size_t(s)].push_back({{page, kMoved + r % kMoved}, {page, r % kMoved}});
    }
  return rows;
}

}  // namespace

double CompactionLoad::bytes() const { return 2.0 * batch * rows * double(cache.bytes_per_row()); }

double compaction_seconds(Backend& b, const CompactionLoad& load, int repeats) {
  constexpr int kWarmUp = 3;
  const int width = load.context / kPageRows, touched = (load.rows + kMoved - 1) / kMoved;  // pages of a block table
  if (touched > width)
    throw Error("compaction alone: " + std::to_string(load.rows) + " rows do not move within a context of " +
                std::to_string(load.context) + "; give at least " + std::to_string(touched * kPageRows));
  const Tensor pool = b.allocate({std::int64_t(width) * load.batch, load.cache.page_bytes(kPageRows)}, DType::u8);
  const std::vector<KvLayer> layers = load.cache.in_pages(pool, kPageRows);
  std::vector<std::int32_t> pages(std::size_t(width) * std::size_t(load.batch));
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), std::mt19937(1));
  // Made beforehand: only the call is timed.
  std::vector<std::vector<std::vector<Moves::Row>>> rows;
  for (int i = 0; i < kWarmUp + repeats; ++i) rows.push_back(rows_of(load, pages, touched, i));
  std::vector<std::vector<Moves>> moves;
  for (const auto& of_call : rows) {
    moves.emplace_back();
    for (const auto& of_table : of_call) moves.back().push_back({layers, of_table});
  }
  auto next = moves.cbegin();
  for (int i = 0; i < kWarmUp; ++i) b.move(*next++);
  return time_of(b, repeats, [&] { b.move(*next++); });
}

namespace {

using Json = nlohmann::json;

// The row of the table: microseconds of `what`, bytes, and the share of the copy bandwidth that they make.
std::string row_of(const Scenario& s, double seconds, const char* what, double bytes, double share) {
  char text[256];
  std::snprintf(text, sizeof text, "%-44s %8.2f us%s, %.1f MB of keys and values: %.3f of the copy bandwidth",
                s.name.c_str(), seconds * 1e6, what, bytes / 1e6, share);
  return text;
}

}  // namespace

AloneResult measure_attention(const Scenario& s, Workbench& bench, const ModelConfig& model, double bytes_a_second) {
  const AttentionLoad load{s.batch, s.context, s.guesses + 1, bench.target_info(s.run, "").kv.layers.front()};
  const double seconds = attention_seconds(bench.backend(s.run.at("engine")), model, load, s.steps),
               bytes = load.bytes(), share = share_of(bytes, seconds, bytes_a_second);
  AloneResult r{1e3 * seconds,
                {{"rows", load.rows}, {"layer_us", seconds * 1e6}, {"kv_bytes", bytes}, {"share", share}},
                row_of(s, seconds, " a layer", bytes, share)};
  if (s.share > 0) {
    char text[64];
    std::snprintf(text, sizeof text, " (at least %g: %s)", s.share, share >= s.share ? "met" : "MISSED");
    r.text += text;
    r.line["bar_share"] = s.share, r.line["met"] = share >= s.share;
  }
  return r;
}

AloneResult measure_compaction(const Scenario& s, Workbench& bench, double bytes_a_second) {
  const CompactionLoad load{s.batch, s.context, s.moves, bench.target_info(s.run, "").kv};
  const double seconds = compaction_seconds(bench.backend(s.run.at("engine")), load, s.steps), bytes = load.bytes(),
               share = share_of(bytes, seconds, bytes_a_second);
  return {1e3 * seconds,
          {{"rows", load.rows}, {"compaction_us", seconds * 1e6}, {"kv_bytes", bytes}, {"share", share}},
          row_of(s, seconds, "", bytes, share)};
}

}  // namespace foretoken
