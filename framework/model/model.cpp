#include "framework/model/model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/error.h"

namespace foretoken {

std::int64_t KvShape::bytes_per_row() const {
  std::int64_t bytes = 0;
  for (const LayerShape& l : layers) bytes += l.bytes_per_row();
  return bytes;
}

std::int64_t LayerShape::bound_bytes() const {
  return bounds ? 2ll * kv_heads * head_size * size_of(bounds_type(dtype)) : 0;
}

// With what aligns them behind rows of any size.
std::int64_t KvShape::bound_bytes() const {
  std::int64_t bytes = 0;
  for (const LayerShape& l : layers) bytes += l.bound_bytes();
  return bytes > 0 ? bytes + kCodedHead : 0;
}

std::int64_t KvShape::page_bytes(int rows) const {
  const bool aligned = std::ranges::any_of(layers, [](const LayerShape& l) { return has_scales(l.dtype) || l.bounds; });
  const std::int64_t bytes = rows * bytes_per_row() + bound_bytes();
  return aligned ? (bytes + kCodedHead - 1) / kCodedHead * kCodedHead : bytes;
}

std::vector<KvLayer> KvShape::in_pages(const Tensor& pool, int rows) const {
  std::vector<KvLayer> all;
  std::int64_t at = 0;
  for (const LayerShape& l : layers) {
    const std::int64_t keys = at, bytes = l.key_bytes() * rows;
    all.push_back({pool, keys, keys + bytes, rows, l.kv_heads, l.head_size, l.dtype});
    at += 2 * bytes;
    if (l.latent == 0) continue;
    all.back().latent = l.latent, all.back().values = keys + (l.head_size - l.latent) * size_of(l.dtype);
    at -= bytes;
  }
  for (std::size_t l = 0; l < all.size(); ++l) {
    const std::int64_t bytes = layers[l].scale_bytes() * rows, apart = layers[l].latent > 0 ? 0 : bytes;
    if (bytes > 0) all[l].key_scales = at, all[l].value_scales = at + apart;
    at += bytes + apart;
  }
  at = (at + kCodedHead - 1) / kCodedHead * kCodedHead;
  for (std::size_t l = 0; l < all.size(); ++l)
    if (layers[l].bounds) all[l].bounds = at, at += layers[l].bound_bytes();
  return all;
}

void KvShape::expect_heads(const std::string& model) const {
  for (const LayerShape& l : layers)
    if (has_scales(l.dtype) && l.head_size % kCodedHead != 0)
      throw Error("the heads of the model " + model + " have " + std::to_string(l.head_size) +
                  " numbers, but those of an int8 or fp8 cache must have a multiple of " + std::to_string(kCodedHead) +
                  "; give it \"kv_dtype\": \"bf16\"");
}

int KvShape::window(const std::string& model) const {
  int window = 0;
  for (const LayerShape& l : layers) {
    if (window > 0 && l.window > 0 && l.window != window)
      throw Error("layers of the model " + model + " have windows of " + std::to_string(window) + " and of " +
                  std::to_string(l.window) + " positions; only one size is supported, so choose a model with one");
    window = std::max(window, l.window);
  }
  return window;
}

bool KvShape::has_layers_without_window() const {
  return std::ranges::any_of(layers, [](const LayerShape& l) { return l.window == 0; });
}

std::int64_t ModelInfo::spared_bytes(double rows) const {
  return std::int64_t(double(expert_bytes) * std::pow(1 - used_experts, rows));
}

LayerShape tap_shape(int width, DType cache) { return {1, width / 2, cache == DType::f32 ? DType::f32 : DType::bf16}; }

KvShape with_taps(const ModelInfo& model, std::span<const Tap> taps, bool bounds) {
  KvShape all = model.kv;
  for (LayerShape& l : all.layers) l.bounds = bounds;
  const int layers = int(model.kv.layers.size());
  for (const Tap t : taps) {
    if (model.width <= 0 || model.width % 2 != 0)
      throw Error("the model " + model.name + " keeps no hidden states; choose a drafter that needs none");
    if (t != kNormed && (t < 0 || t > layers))
      throw Error("the state after layer " + std::to_string(t) + " of the model " + model.name +
                  " is asked for, which has " + std::to_string(layers) + " layers; 0 to " + std::to_string(layers) +
                  " are its states, -1 the one that its head reads");
    all.layers.push_back(tap_shape(model.width, model.kv.layers.front().dtype));
    all.layers.back().window = model.kv.layers.front().window;
  }
  return all;
}

void store_tap(Backend& backend, const Tensor& x, const KvLayer& kv, const Layout& layout) {
  backend.store(x.columns(0, kv.head_size), x.columns(kv.head_size, kv.head_size), kv, layout);
}

void expect_no_inputs(const Rows& rows, const std::string& model) {
  if (rows.inputs)
    throw Error("the model " + model + " is given features of its rows (Rows::inputs), which it does not support");
}

void expect_tokens_alone(const Rows& rows, const std::string& model) {
  if (!rows.taps.empty())
    throw Error("the model " + model +
                " is requested to store its hidden states (Rows::taps), which it does not support");
  expect_no_inputs(rows, model);
}

std::shared_ptr<Model> Model::part(const std::shared_ptr<Model>&, const LeftOut&) {
  throw Error("the model " + info().name + " has no layers that a drafter could leave out; choose another drafter");
}

std::shared_ptr<Model> part_of(const std::shared_ptr<Model>& whole, const LeftOut& left_out) {
  const ModelInfo& m = whole->info();
  for (const auto& [numbers, what] :
       {std::pair(&left_out.attention, "attention"), std::pair(&left_out.feed_forward, "feed-forward sublayer")})
    for (const int l : *numbers)
      if (l < 0 || l >= int(m.kv.layers.size()))
        throw Error("the " + std::string(what) + " of layer " + std::to_string(l) + " of the model " + m.name +
                    " is to be left out, but its layers are 0 to " + std::to_string(m.kv.layers.size() - 1));
  return whole->part(whole, left_out);
}

}  // namespace foretoken
