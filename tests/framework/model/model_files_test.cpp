// What is a model by its path, and which files it has.
#include "framework/model/model_files.h"

#include <gtest/gtest.h>

#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

TEST(ModelFiles, APathThatHoldsNoModelIsRefusedBeforeAnythingIsRead) {
  const TemporaryFolder folder;
  const auto file = folder.write("a.gguf", "x"), none = folder.path() / "none";
  EXPECT_EQ(sentence_of([&] { expect_model(folder.path()); }), "");
  EXPECT_EQ(sentence_of([&] { expect_model(file); }), "");
  const std::string refusal =
      "the model directory " + none.string() +
      " does not exist; give the path of a directory with config.json, model.safetensors and tokenizer.json, or of a "
      ".gguf file";
  EXPECT_EQ(sentence_of([&] { expect_model(none); }), refusal);
  EXPECT_EQ(sentence_of([&] { ModelFiles::open(none); }), refusal);
  const auto hub = [] { expect_model("owner/model"); };
  EXPECT_TRUE(says(sentence_of(hub), "owner/model does not exist", "a name on the Hugging Face hub", "download"));
  EXPECT_EQ(sentence_of([] { expect_model("./none"); }).find("hub"), std::string::npos);
  EXPECT_TRUE(is_one_file(file));
  EXPECT_FALSE(is_one_file(folder.path()) || is_one_file(none));
  EXPECT_EQ(files_of_model(file), std::vector{file});
}

}  // namespace
}  // namespace foretoken::test
