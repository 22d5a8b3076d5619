// Any text as the index of a checkpoint of two shards: an accepted one names every tensor of both, once.
#include <cstring>
#include <fstream>

#include "framework/model/checkpoint.h"
#include "tests/fuzz/fuzz.h"

using namespace foretoken;

namespace {

// A folder with the shards a.safetensors and b.safetensors, of one tensor each: x and y.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "foretoken-fuzz-XXXXXX").string();
    fuzz::expect(::mkdtemp(name.data()) != nullptr, "a folder can be made");
    path_ = name;
    write_shard("a.safetensors", "x");
    write_shard("b.safetensors", "y");
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(const char* name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary | std::ios::trunc) << bytes;
  }

 private:
  void write_shard(const char* file, const std::string& tensor) const {
    const std::string header = "{\"" + tensor + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
    const std::uint64_t length = header.size();
    write(file, std::string(reinterpret_cast<const char*>(&length), 8) + header + "1");
  }

  std::filesystem::path path_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::feed(data, size, [](std::string_view text) {
    static const Folder folder;
    folder.write("model.safetensors.index.json", text);
    const Checkpoint checkpoint = Checkpoint::open(folder.path());
    for (const std::string& name : checkpoint.names())
      fuzz::expect((name == "x" || name == "y") && *checkpoint.tensor(name, {1}).data<char>() == '1',
                   "tensors are those of the shards");
  });
}
