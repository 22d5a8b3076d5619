// One GGUF file (version 2 or 3, little-endian): metadata, and tensors of typed blocks. The file is mapped and checked,
// not copied. This module must not know architectures or what a tensor is for. Format:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/model/gguf/gguf_metadata.h"
#include "framework/model/gguf/gguf_type.h"
#include "framework/model/mapped_file.h"

namespace foretoken {

struct GgufTensor {
  const GgufType* type = nullptr;
  Shape shape;  // outermost first; rows are whole blocks
  char* data = nullptr;
  std::uint64_t bytes = 0;
};

class GgufFile {
 public:
  // Maps the file and checks all that stands before the data: types, shapes, offsets, overlaps and gaps, duplicate
  // names. A file
  // of another version or byte order, one of several parts, or a truncated one is an Error.
  static std::shared_ptr<const GgufFile> open(const std::filesystem::path& file);

  const GgufMetadata& metadata() const { return metadata_; }
  const std::map<std::string, GgufTensor>& tensors() const { return tensors_; }
  const std::string& where() const { return where_; }
  // Keeps the tensors' memory alive.
  const std::shared_ptr<MappedFile>& mapping() const { return mapping_; }

 private:
  void read_header(GgufCursor& from);
  void read_tensor(GgufCursor& from, std::map<std::string, std::uint64_t>& offsets);
  void place(const std::map<std::string, std::uint64_t>& offsets, std::uint64_t header_end);
  // `order`: offsets and names, ascending; `size`: bytes of the data.
  void expect_no_gaps(const std::vector<std::pair<std::uint64_t, std::string>>& order, std::uint64_t size,
                      std::uint64_t alignment) const;

  std::string where_;
  std::shared_ptr<MappedFile> mapping_;
  GgufMetadata metadata_;
  std::map<std::string, GgufTensor> tensors_;
};

}  // namespace foretoken
