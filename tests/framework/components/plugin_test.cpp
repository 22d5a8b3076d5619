// What load_plugin adds, and what it refuses. tests/plugins builds plugins as users do; here one does what it is told.
#include "framework/components/plugin.h"

#include <fstream>

#include <dlfcn.h>
#include <elf.h>
#include <gtest/gtest.h>

#include "framework/components/shared_library.h"
#include "framework/model/model.h"
#include "framework/text/json_file.h"
#include "tests/framework/text/temporary_folder.h"
#include "tests/support/sentence.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

using test::says;
using test::sentence_of;
constexpr const char* kRebuild =
    "rebuild it against this installation (./foretoken install, then configure and build the plugin afresh)";

// What the plugin does when it is asked for its ABI and for its entries.
std::function<const char*()> abi;
std::function<void(Registries&)> registering;

struct Plugin : ::testing::Test {
  Plugin() {
    abi = [] { return kAbi; };
    registering = [](Registries&) {};
    void* const puppet = dlopen(path.c_str(), RTLD_NOW);
    if (!puppet) throw Error(dlerror());
    *static_cast<const char* (**)()>(dlsym(puppet, "puppet_abi")) = [] { return abi(); };
    *static_cast<void (**)(void*)>(dlsym(puppet, "puppet_plugin")) = [](void* r) {
      ++asked;
      registering(*static_cast<Registries*>(r));
    };
    register_drafters(registries);
    asked = 0;
  }
  // The message that refuses the puppet; the registries are as before.
  std::string refusal() {
    const auto known = registries.drafters.names();
    const std::string said = sentence_of([&] { load_plugin(path, registries); });
    EXPECT_EQ(registries.drafters.names(), known);
    EXPECT_TRUE(registries.plugins.empty() && registries.verifiers.names().empty());
    return said;
  }
  std::string refusal_of(const std::filesystem::path& file) {
    return sentence_of([&] { load_plugin(file, registries); });
  }

  static inline int asked = 0;
  const std::string path = FORETOKEN_PUPPET_PLUGIN, who = "the plugin " + path;
  Registries registries;
  test::TemporaryFolder folder;
};

template <class T> Entry<T> making_nothing() {
  Entry<T> entry;
  entry.make = [](const nlohmann::json&, Host&) { return nullptr; };
  entry.traits = states(typename T::Traits());
  return entry;
}

TEST_F(Plugin, AddsEntriesOfEveryKindAndSaysWhereTheyCameFrom) {
  registering = [](Registries& r) {
    r.drafters.add("mine", making_nothing<Drafter>());
    r.policies.add("mine too", making_nothing<LengthPolicy>());
    r.verifiers.add("mine three", making_nothing<Verifier>());
  };
  const std::size_t before = registries.drafters.entries().size();
  load_plugin(path, registries);
  EXPECT_EQ(registries.drafters.entries().size(), before + 1);
  EXPECT_EQ(registries.drafters.entries().at("mine").plugin, path);
  EXPECT_EQ(registries.drafters.entries().at("ngram").plugin, "");
  EXPECT_EQ(registries.policies.entries().at("mine too").plugin, path);
  EXPECT_EQ(registries.verifiers.entries().at("mine three").plugin, path);
  ASSERT_EQ(registries.plugins.size(), 1u);
  EXPECT_EQ(registries.plugins[0].path, path);
  EXPECT_EQ(registries.plugins[0].hash.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(registries.plugins[0].hash.size(), 16u);
}

TEST_F(Plugin, OneEntryOfAnyKindIsEnough) {
  for (int kind = 0; kind < 3; ++kind) {
    registering = [&](Registries& r) {
      if (kind == 0) r.drafters.add("mine", making_nothing<Drafter>());
      if (kind == 1) r.policies.add("mine", making_nothing<LengthPolicy>());
      if (kind == 2) r.verifiers.add("mine", making_nothing<Verifier>());
    };
    Registries fresh;
    load_plugin(path, fresh);
    EXPECT_EQ(fresh.drafters.names().size() + fresh.policies.names().size() + fresh.verifiers.names().size(), 1u);
  }
}

TEST_F(Plugin, ExceptionsOfItsComponentsNameItAndThePlugin) {
  registering = [](Registries& r) {
    Entry<Verifier> entry = making_nothing<Verifier>();
    entry.traits = [](const nlohmann::json&, const ModelInfo&) -> Soundness { throw 3; };
    r.verifiers.add("mine", entry);
  };
  load_plugin(path, registries);
  EXPECT_TRUE(says(sentence_of([&] { registries.verifiers.traits({{"name", "mine"}}, {}); }),
                   "the verifier 'mine' of " + who + " failed in Entry::traits"));
}

TEST_F(Plugin, WithTheSameBytesIsLoadedOnce) {
  registering = [](Registries& r) { r.drafters.add("mine", making_nothing<Drafter>()); };
  load_plugin(path, registries);
  load_plugin(path, registries);
  std::filesystem::copy_file(path, folder.path() / "copy.so");
  load_plugin(folder.path() / "copy.so", registries);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(registries.plugins.size(), 1u);
}

TEST_F(Plugin, OfAnotherAbiIsRefusedByWhatDiffers) {
  const std::string own = kAbi, first = own.substr(0, own.find("; ")), rest = own.substr(own.find("; "));
  const std::string last = own.substr(own.rfind("; ") + 2), head = own.substr(0, own.rfind("; "));
  std::string said;
  abi = [&] { return said.c_str(); };
  const auto refused = [&](const std::string& of, const std::string& theirs, const std::string& ours) {
    said = of;
    EXPECT_EQ(refusal(),
              who + " was built for another ABI (" + theirs + ") than this program's (" + ours + "); " + kRebuild);
  };
  refused("foretoken 0.0.1" + rest, "foretoken 0.0.1", first);
  refused(head + "; strange", "strange", last);
  refused("a" + rest.substr(0, rest.rfind("; ")) + "; b", "a, b", first + ", " + last);
  refused(own + "; more", "more", "");
  EXPECT_EQ(asked, 0) << "its functions may mean something else";
}

TEST_F(Plugin, WhatItLacksOrThrowsIsSaid) {
  EXPECT_EQ(refusal(), who +
                           " registers nothing; call registries.drafters.add, .policies.add or .verifiers.add in "
                           "foretoken_plugin()");
  registering = [](Registries& r) {
    r.verifiers.add("good", making_nothing<Verifier>());
    Entry<Drafter> bad = making_nothing<Drafter>();
    bad.make = {};
    r.drafters.add("bad", bad);
  };
  EXPECT_EQ(refusal(), who + " registers the drafter 'bad' without a way to make it; fill Entry::make");
  registering = [](Registries& r) { r.drafters.add("bad", {}); };
  EXPECT_EQ(refusal(), who +
                           " failed in foretoken_plugin(): the drafter 'bad' states no traits, which an engine must "
                           "know before it is made; fill Entry::traits");
  registering = [](Registries& r) {
    r.verifiers.add("good", making_nothing<Verifier>());
    throw std::runtime_error("no table");
  };
  EXPECT_EQ(refusal(), who + " failed in foretoken_plugin(): no table");
  registering = [](Registries& r) { r.drafters.add("ngram", making_nothing<Drafter>()); };
  EXPECT_TRUE(says(refusal(), "there is a drafter 'ngram' already (built in); register yours under another name"));
  abi = [] { return nullptr; };
  EXPECT_EQ(refusal(), who + ": foretoken_abi() returns null; let it return foretoken::kAbi");
  abi = []() -> const char* { throw 3; };
  EXPECT_EQ(refusal(), who + " failed in foretoken_abi(): something that is no std::exception");
}

TEST_F(Plugin, FilesThatAreNoPluginsAreRefused) {
  const std::filesystem::path none = folder.path() / "none.so";
  EXPECT_EQ(refusal_of(none), "there is no plugin " + none.string() +
                                  " (No such file or directory); name the shared library (.so) that your build made");
  EXPECT_EQ(refusal_of(folder.path()),
            "there is no plugin " + folder.path().string() + "; name the shared library (.so) that your build made");
  folder.write("text.so", "this is no shared library");
  const std::string text = (folder.path() / "text.so").string();
  EXPECT_EQ(refusal_of(text),
            "the plugin " + text +
                " cannot be loaded: file too short; name a shared library (.so) of this machine, or " + kRebuild);
  const std::string whole = read_file(path), half = whole.substr(0, whole.size() / 2);
  folder.write("half.so", half);
  const std::string cut = (folder.path() / "half.so").string();
  EXPECT_EQ(refusal_of(cut), "the plugin " + cut + " is truncated: its headers name more than the " +
                                 std::to_string(half.size()) + " bytes that the file has; copy it again, or " +
                                 kRebuild);
  Dl_info of{};
  ASSERT_NE(dladdr(dlsym(dlopen("libm.so.6", RTLD_NOW), "cos"), &of), 0);
  EXPECT_EQ(refusal_of(of.dli_fname), std::string("the plugin ") + of.dli_fname +
                                          " does not export foretoken_abi(); define it as extern \"C\", as "
                                          "drafters/template/ does");
}

// --- Libraries that are cut.

struct Whole : ::testing::Test {
  Whole() {
    header.e_ident[EI_MAG0] = ELFMAG0, header.e_ident[EI_MAG1] = ELFMAG1, header.e_ident[EI_MAG2] = ELFMAG2;
    header.e_ident[EI_MAG3] = ELFMAG3, header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_phoff = sizeof header, header.e_phentsize = sizeof(Elf64_Phdr), header.e_phnum = 2;
    segments[0].p_offset = 0, segments[0].p_filesz = sizeof header;
    segments[1].p_offset = kContent, segments[1].p_filesz = 100;
    header.e_shoff = kContent + 100, header.e_shentsize = sizeof(Elf64_Shdr), header.e_shnum = 3;
  }
  // A file of `size` bytes that begins with these headers.
  std::string bytes(std::size_t size = kContent + 100 + 3 * sizeof(Elf64_Shdr)) const {
    std::string all(kContent, '\0');
    std::memcpy(all.data(), &header, sizeof header);
    std::memcpy(all.data() + sizeof header, segments, sizeof segments);
    all.resize(size);
    return all;
  }
  std::string refusal(const std::string& bytes) const {
    return sentence_of([&] { expect_whole(bytes, "X", "build it"); });
  }
  static constexpr std::size_t kContent = sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Phdr);
  Elf64_Ehdr header{};
  Elf64_Phdr segments[2]{};
};

TEST_F(Whole, ALibraryWithAllThatItsHeadersNameIsTaken) {
  EXPECT_EQ(refusal(bytes()), "");
  header.e_shnum = 0, header.e_shoff = 0;
  EXPECT_EQ(refusal(bytes(kContent + 100)), "") << "up to the last byte of the last segment";
  segments[1].p_filesz = 0;
  EXPECT_EQ(refusal(bytes(kContent)), "") << "up to the last segment's header";
}

TEST_F(Whole, APartBeyondTheEndIsNamed) {
  const std::string whole = bytes();
  const auto cut = [&](const std::string& all) {
    EXPECT_EQ(refusal(all), "X is truncated: its headers name more than the " + std::to_string(all.size()) +
                                " bytes that the file has; copy it again, or build it");
  };
  cut(whole.substr(0, whole.size() - 1));    // in the table of sections
  cut(whole.substr(0, kContent + 50));       // in the second segment
  cut(whole.substr(0, kContent - 1));        // in the table of segments
  cut(whole.substr(0, sizeof(Elf64_Ehdr)));  // nothing but the header
  header.e_shnum = 0, header.e_shoff = 0;
  cut(bytes(kContent + 99));
  segments[0].p_filesz = kContent + 101;
  cut(bytes(kContent + 100));  // in the first segment
  segments[0].p_filesz = 0;
  segments[1].p_filesz = ~std::uint64_t(0);  // its end would be another place if numbers wrapped around
  cut(bytes(kContent + 100));
  segments[1].p_filesz = 0, header.e_phentsize = 1;
  cut(bytes(kContent + 100));
}

TEST_F(Whole, WhatIsNoLibraryIsLeftToTheLinker) {
  const std::string whole = bytes();
  EXPECT_EQ(refusal(""), "");
  EXPECT_EQ(refusal(whole.substr(0, sizeof(Elf64_Ehdr) - 1)), "");
  header.e_ident[EI_CLASS] = ELFCLASS32;
  EXPECT_EQ(refusal(bytes(sizeof header)), "");
  header.e_ident[EI_CLASS] = ELFCLASS64, header.e_ident[EI_MAG3] = 'X';
  EXPECT_EQ(refusal(bytes(sizeof header)), "");
}

}  // namespace
}  // namespace foretoken::test
