// The folder of a checkpoint that is being written: whose it is, what it is called in the end, and when it is removed.
#include <csignal>
#include <set>

#include <sys/resource.h>

#include "experiments/quantize/quantize.h"
#include "tests/experiments/quantize/quantized.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

class UnfinishedWork : public Quantized {
 protected:
  void add(UnfinishedCheckpoint& work, int shard) const {
    const StoredTensor t = stored_tensor("t" + std::to_string(shard), Tensor::host({2}, DType::u8));
    work.add(shard, {&t, 1}, json::object());
  }
  std::string refusal(const fs::path& out, const json& job = 1) const {
    return sentence_of([&] { UnfinishedCheckpoint(out, job, 2); });
  }
  fs::path partial() const { return here_ / "out.partial"; }
};

// No file can grow, as on a full disk.
class FullDisk {
 public:
  FullDisk() {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit none{0, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &none);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

// However the directory is written, it is the one that is made, and its unfinished work lies beside it.
TEST_F(UnfinishedWork, EndsInTheDirectoryOfEveryPath) {
  for (const std::string path : {"out", "out/", "out/.", "./out", "other/../out/"}) {
    UnfinishedCheckpoint work(here_.string() + "/" + path, 1, 2);
    EXPECT_EQ(work.folder(), partial()) << path;
    add(work, 0), add(work, 1);
    work.finish();
    EXPECT_FALSE(fs::exists(partial())) << path;
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(here_ / "out")) found.insert(entry.path().filename());
    EXPECT_EQ(found, (std::set<std::string>{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                                            "model.safetensors.index.json"}))
        << path;
    EXPECT_EQ(read_json(here_ / "out" / "model.safetensors.index.json"),
              json({{"metadata", {{"total_size", 4}}},  // two tensors of two bytes
                    {"weight_map",
                     {{"t0", "model-00001-of-00002.safetensors"}, {"t1", "model-00002-of-00002.safetensors"}}}}));
    EXPECT_TRUE(says(refusal(here_.string() + "/" + path), "exists already")) << path;
    fs::remove_all(here_ / "out");
  }
}

// Killed after it made the folder and before it had its lock there.
TEST_F(UnfinishedWork, OfAProcessThatWasKilledBeforeItsLockGoesOn) {
  fs::create_directories(partial());
  UnfinishedCheckpoint work(here_ / "out", 1, 2);
  add(work, 0), add(work, 1);
  work.finish();
  EXPECT_TRUE(fs::exists(here_ / "out" / "model.safetensors.index.json"));
}

// What cannot get its name in the end is all there, so that the same command ends it later.
TEST_F(UnfinishedWork, ThatCannotBeRenamedCanBeFinishedLater) {
  {
    UnfinishedCheckpoint work(here_ / "out", 1, 2);
    add(work, 0), add(work, 1);
    fs::create_directories(here_ / "out" / "in the way");
    EXPECT_THROW(work.finish(), std::exception);
  }
  fs::remove_all(here_ / "out");
  UnfinishedCheckpoint again(here_ / "out", 1, 2);
  EXPECT_TRUE(again.finished(0) && again.finished(1));
  again.finish();
  EXPECT_TRUE(fs::exists(here_ / "out" / "model.safetensors.index.json"));
}

// A shard that was cut since is not taken for finished.
TEST_F(UnfinishedWork, WithADamagedShardIsRefused) {
  {
    UnfinishedCheckpoint work(here_ / "out", 1, 2);
    add(work, 0), add(work, 1);
  }
  const fs::path shard = partial() / "model-00002-of-00002.safetensors";
  fs::resize_file(shard, fs::file_size(shard) - 1);
  EXPECT_TRUE(says(refusal(here_ / "out"), shard.string(), "not as long", "remove", partial().string()));
}

// The second is refused, and takes nothing from the first: neither before its first shard nor after.
TEST_F(UnfinishedWork, IsOfOneProcessAtATime) {
  UnfinishedCheckpoint first(here_ / "out", 1, 2);
  EXPECT_TRUE(says(refusal(here_ / "out"), "another process", "out.partial", "--out"));
  EXPECT_TRUE(says(refusal(here_ / "out", 2), "another process"));
  add(first, 0);
  EXPECT_TRUE(says(refusal(here_ / "out"), "another process"));
  add(first, 1);
  first.finish();
  EXPECT_TRUE(fs::exists(here_ / "out" / "model-00001-of-00002.safetensors"));
}

TEST_F(UnfinishedWork, OfAnotherProcessIsNotRemoved) {
  {
    UnfinishedCheckpoint first(here_ / "out", 1, 2);
    add(first, 0);
  }
  fs::rename(partial() / "model-00001-of-00002.safetensors", here_ / "moved");
  {
    UnfinishedCheckpoint second(here_ / "out", 1, 2);
  }
  EXPECT_TRUE(fs::exists(partial())) << "it was there before";
  fs::remove_all(partial());
  {
    UnfinishedCheckpoint third(here_ / "out", 1, 2);
  }
  EXPECT_FALSE(fs::exists(partial())) << "nothing was finished";
}

TEST_F(UnfinishedWork, OnAFullDiskLeavesNothing) {
  {
    const FullDisk full;
    EXPECT_TRUE(says(refusal(here_ / "out"), "unfinished.json", "cannot be written", "make room"));
  }
  EXPECT_FALSE(fs::exists(partial()));
  EXPECT_EQ(refusal(here_ / "out"), "") << "with room it can be begun";
}

// The command itself: a second one with the same --out, while the first is at work.
TEST_F(UnfinishedWork, OfACommandIsNotDestroyedByAnother) {
  QuantizeOptions o = options("llama2", "int8");
  o.out = (here_ / "out").string() + "/";
  int refused = 0;
  (void)quantize_checkpoint(o, [&](int finished, int layers) {
    if (finished == layers) return;
    EXPECT_TRUE(says(sentence_of([&] { (void)quantize(o); }), "another process")) << finished;
    ++refused;
  });
  EXPECT_GT(refused, 1);
  EXPECT_FALSE(tensors_in(here_ / "out").empty());
}

}  // namespace
}  // namespace foretoken::test
