// The tensors of a published draft head under one set of names, whatever its layout calls them, and parts of matrices
// that read two inputs side by side. This module must not know what a tensor is for.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "framework/model/checkpoint.h"

namespace foretoken {

class HeadTensors : public TensorSource {
 public:
  // `known_as`: a stored name to the name by which it is asked for here; "" where it is not used.
  using Rename = std::function<std::string(const std::string&)>;
  // model.safetensors of the directory. Files that end in .bin or .pt alone are an Error that names the command that
  // converts them.
  // `quantized`: the tensors of the same directory, where matrices are quantized; null: all are dense.
  HeadTensors(const std::filesystem::path& directory, const Rename& known_as,
              std::shared_ptr<const TensorSource> quantized = nullptr);

  bool has(const std::string& name) const { return stored_.contains(name); }
  Shape shape(const std::string& name) const;
  // MODULE.part0.weight and MODULE.part1.weight are the left and the right columns of MODULE.weight, as many as are
  // expected; the bias MODULE.bias is that of part0.
  Tensor tensor(const std::string& name, const Shape& expected) const override;
  // In the format in which it is stored.
  Weight matrix(const std::string& module, const Shape& expected) const override;
  std::vector<std::string> names() const override;
  std::string where() const override { return file_.where(); }
  // An Error that lists the tensors that nothing has asked for. `kind`: what the head was taken for.
  void expect_all_read(const std::string& kind) const;
  // Likewise those that are not among `shapes`.
  void expect_known(const std::string& kind, const std::map<std::string, Shape>& shapes) const;
  // An Error that lists what is there. `lacks`: what is not, "no Medusa heads".
  [[noreturn]] void refuse(const std::string& lacks) const;
  std::string listed() const;  // some of the names that the file has, for messages

 private:
  void expect_used(const std::string& kind, const std::function<bool(const std::string&)>& used) const;

  Tensor dequantized_whole(const std::string& stored) const;

  Checkpoint file_;
  std::shared_ptr<const TensorSource> quantized_;  // null: all of it is dense
  std::map<std::string, std::string> stored_;      // name here to name there
  mutable std::set<std::string> read_;
};

}  // namespace foretoken
