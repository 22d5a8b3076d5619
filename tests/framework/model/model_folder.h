// A copy of a committed test model, in a folder of its own, whose configuration and tensors a test changes.
#pragma once
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/model/transformer.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {

using Tensors = std::map<std::string, Tensor>;

// The bytes of a safetensors file.
inline std::string safetensors_of(const Tensors& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto& [name, t] : tensors) {
    std::vector<std::int64_t> shape;
    for (int i = 0; i < t.shape().rank(); ++i) shape.push_back(t.dim(i));
    header[name] = {{"dtype", name_of(t.dtype())},
                    {"shape", shape},
                    {"data_offsets", {data.size(), data.size() + std::size_t(t.bytes())}}};
    data.append(t.data<char>(), std::size_t(t.bytes()));
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + text + data;
}

inline Tensor host_copy(const Tensor& t) {
  const Tensor copy = Tensor::host(t.shape(), t.dtype());
  std::memcpy(copy.raw(), t.raw(), std::size_t(t.bytes()));
  return copy;
}

class ModelFolder {
 public:
  // `name`: a folder of tests/data/models, or of another folder there.
  explicit ModelFolder(const std::string& name, const std::string& of = "models") {
    const auto from = std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests/data" / of / name;
    config = nlohmann::json::parse(std::ifstream(from / "config.json"));
    const Checkpoint checkpoint = Checkpoint::open(from);
    for (const std::string& t : checkpoint.names()) tensors[t] = host_copy(checkpoint.tensor(t));
  }

  nlohmann::json config;
  Tensors tensors;

  void add(const std::string& name, Shape shape, DType type = DType::f32) {
    tensors[name] = Tensor::host(shape, type);
    std::memset(tensors[name].raw(), 0, std::size_t(tensors[name].bytes()));
  }
  // One file of the tensors.
  const std::filesystem::path& write() const {
    folder_.write("model.safetensors", safetensors_of(tensors));
    return write_config();
  }
  // Two files, a.safetensors and b.safetensors, and the index that belongs to them; returns the index.
  nlohmann::json write_shards() const {
    Tensors shards[2];
    nlohmann::json map;
    for (const auto& [name, t] : tensors) {
      const std::size_t shard = map.size() % 2;
      shards[shard][name] = t;
      map[name] = shard ? "b.safetensors" : "a.safetensors";
    }
    folder_.write("a.safetensors", safetensors_of(shards[0]));
    folder_.write("b.safetensors", safetensors_of(shards[1]));
    folder_.write("model.safetensors.index.json", nlohmann::json{{"weight_map", map}}.dump());
    write_config();
    return map;
  }
  // The message of loading the folder; "" where it loads.
  std::string refusal() const {
    return sentence_of([&] {
      const auto backend = make_reference_backend();
      const Transformer model(*backend, ModelConfig::load(folder_.path()), Checkpoint::open(folder_.path()), "m", 0);
    });
  }
  const TemporaryFolder& folder() const { return folder_; }

 private:
  const std::filesystem::path& write_config() const {
    folder_.write("config.json", config.dump());
    return folder_.path();
  }

  TemporaryFolder folder_;
};

}  // namespace foretoken::test
