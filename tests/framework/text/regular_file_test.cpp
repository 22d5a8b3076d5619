// Files that users name: their whole content, or an Error, without blocking.
#include "framework/text/regular_file.h"

#include <thread>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/text/json_file.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

std::string refusal(const std::filesystem::path& file, Pipes pipes = Pipes::refused) {
  return sentence_of([&] { read_bytes(file, "the file " + file.string(), "name another", pipes); });
}

TEST(RegularFile, IsReadWhole) {
  const TemporaryFolder folder;
  for (const std::size_t size : {std::size_t(0), std::size_t(1), std::size_t(1) << 20, (std::size_t(2) << 20) + 7}) {
    const std::string bytes(size, '\0');
    EXPECT_EQ(read_bytes(folder.write("f", bytes), "f", ""), bytes);
  }
  EXPECT_GT(read_bytes("/proc/self/status", "status", "").size(), 100u) << "a file whose size is not known before";
}

TEST(RegularFile, OtherKindsOfFilesAreRefusedWithoutBlocking) {
  const TemporaryFolder folder;
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const Pipes pipes : {Pipes::refused, Pipes::opened})
    EXPECT_TRUE(says(refusal(pipe, pipes), "the file", "a pipe", "name another"));
  EXPECT_TRUE(says(refusal(folder.path()), "a directory"));
  EXPECT_TRUE(says(refusal("/dev/zero"), "a device"));
  EXPECT_TRUE(says(refusal(folder.path() / "none"), "does not exist; name another"));
  EXPECT_TRUE(says(sentence_of([&] { read_file(pipe); }), "pipe is a pipe"));
}

TEST(RegularFile, AReadErrorIsNotItsEnd) {
  EXPECT_TRUE(says(refusal("/proc/self/mem"), "/proc/self/mem", "Input/output error"));
  EXPECT_TRUE(says(sentence_of([] { read_file("/proc/self/mem"); }), "/proc/self/mem", "Input/output error"));
}

TEST(RegularFile, APipeThatIsOpenIsReadToItsEnd) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string name = "/dev/fd/" + std::to_string(ends[0]), sent(300'000, 'x');  // more than a pipe holds
  EXPECT_TRUE(says(refusal(name), "a pipe"));
  std::thread writer([&] {
    for (std::size_t at = 0; at < sent.size();)
      at += std::size_t(::write(ends[1], sent.data() + at, std::min<std::size_t>(sent.size() - at, 1000)));
    ::close(ends[1]);
  });
  EXPECT_EQ(read_bytes(name, name, "", Pipes::opened), sent);
  writer.join();
  ::close(ends[0]);
}

}  // namespace
}  // namespace foretoken::test
