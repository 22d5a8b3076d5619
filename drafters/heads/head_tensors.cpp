#include "drafters/heads/head_tensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

namespace fs = std::filesystem;

Checkpoint opened(const fs::path& directory) {
  expect_model_directory(directory);
  if (!has_file(directory / "model.safetensors") && !has_file(directory / "model.safetensors.index.json")) {
    std::vector<fs::path> others;  // "medusa_lm_head.safetensors"
    for (const auto& file : fs::directory_iterator(directory))
      if (file.path().extension() == ".safetensors") others.push_back(file.path());
    if (others.size() == 1) return Checkpoint::open_file(others.front());
    for (const auto& file : fs::directory_iterator(directory))
      if (const auto end = file.path().extension(); end == ".bin" || end == ".pt")
        throw Error(file.path().string() + " is a Python pickle, which is not read; convert it once: python3 " +
                    "experiments/models/convert_head.py " + directory.string());
  }
  return Checkpoint::open(directory);
}

// Columns [begin, begin + count) of a matrix, dense.
Tensor columns_of(const Tensor& all, std::int64_t begin, std::int64_t count) {
  const Tensor part = Tensor::host({all.dim(0), count}, all.dtype());
  const std::size_t size = std::size_t(size_of(all.dtype()));
  for (std::int64_t r = 0; r < all.dim(0); ++r)
    std::memcpy(static_cast<std::byte*>(part.raw()) + std::size_t(r * count) * size,
                static_cast<const std::byte*>(all.raw()) + std::size_t(r * all.dim(1) + begin) * size,
                std::size_t(count) * size);
  return part;
}

}  // namespace

HeadTensors::HeadTensors(const fs::path& directory, const Rename& known_as,
                         std::shared_ptr<const TensorSource> quantized)
    : file_(opened(directory)), quantized_(std::move(quantized)) {
  for (const std::string& name : file_.names()) {
    const std::string here = known_as(name);
    if (here.empty())
      read_.insert(name);
    else if (!stored_.emplace(here, name).second)
      throw Error(where() + ": the tensors '" + stored_.at(here) + "' and '" + name + "' are both '" + here +
                  "'; it mixes two layouts; choose the head as it was published");
  }
}

Shape HeadTensors::shape(const std::string& name) const { return file_.tensor(stored_.at(name)).shape(); }

Tensor HeadTensors::tensor(const std::string& name, const Shape& expected) const {
  const std::size_t part = name.find(".part");
  std::string whole = name;
  if (part != name.npos) whole.erase(part, std::strlen(".part0"));
  const auto stored = stored_.find(whole);
  if (stored == stored_.end())
    throw Error(where() + " has no tensor '" + whole + "'; it is no whole head of this kind");
  read_.insert(stored->second);
  if (part == name.npos || expected.rank() != 2)
    return quantized_ ? quantized_->tensor(stored->second, expected) : file_.tensor(stored->second, expected);
  const Tensor all = dequantized_whole(stored->second);
  const std::int64_t begin = (name[part + std::strlen(".part")] - '0') * expected[1];
  if (all.rank() != 2 || all.dim(0) != expected[0] || all.dim(1) % expected[1] != 0 || begin >= all.dim(1))
    throw Error(where() + ": tensor '" + stored->second + "' has the shape " + all.shape().text() + ", but inputs of " +
                std::to_string(expected[1]) + " numbers side by side and " + std::to_string(expected[0]) +
                " outputs are expected; the head belongs to another target");
  return columns_of(all, begin, expected[1]);
}

Tensor HeadTensors::dequantized_whole(const std::string& stored) const {
  const Tensor all = file_.tensor(stored);
  return quantized_ ? quantized_->tensor(stored, all.shape()) : all;
}

Weight HeadTensors::matrix(const std::string& module, const Shape& expected) const {
  constexpr std::string_view kWeight = ".weight";
  const auto stored = stored_.find(module + std::string(kWeight));
  if (!quantized_ || stored == stored_.end()) return TensorSource::matrix(module, expected);
  read_.insert(stored->second);
  return quantized_->matrix(stored->second.substr(0, stored->second.size() - kWeight.size()), expected);
}

std::vector<std::string> HeadTensors::names() const {
  std::vector<std::string> all;
  for (const auto& [here, there] : stored_) all.push_back(here);
  return all;
}

void HeadTensors::expect_all_read(const std::string& kind) const {
  expect_used(kind, [&](const std::string& name) { return read_.contains(name); });
}

void HeadTensors::expect_known(const std::string& kind, const std::map<std::string, Shape>& shapes) const {
  std::set<std::string> known = read_;
  for (const auto& [here, there] : stored_)
    if (shapes.contains(here)) known.insert(there);
  expect_used(kind, [&](const std::string& name) { return known.contains(name); });
}

void HeadTensors::expect_used(const std::string& kind, const std::function<bool(const std::string&)>& used) const {
  std::string unused;
  for (const std::string& name : file_.names())
    if (!used(name)) unused += (unused.empty() ? "" : ", ") + name;
  if (!unused.empty())
    throw Error(where() + " looks like " + kind + ", which has no tensors " + unused +
                "; this layout is not known, choose a head of a known one");
}

std::string HeadTensors::listed() const {
  constexpr std::size_t kShown = 12;
  std::string there;
  const std::vector<std::string> all = file_.names();
  for (std::size_t i = 0; i < std::min(all.size(), kShown); ++i) there += (i == 0 ? "" : ", ") + all[i];
  if (all.size() > kShown) there += " and " + std::to_string(all.size() - kShown) + " others";
  return there;
}

void HeadTensors::refuse(const std::string& lacks) const {
  throw Error(where() + " has " + lacks + ", but the tensors " + listed() + "; choose the drafter of its own kind");
}

}  // namespace foretoken
