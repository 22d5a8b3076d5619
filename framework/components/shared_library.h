// A shared library: whether its file is whole, and its functions once it is loaded. Knows ELF and the dynamic linker;
// it must not know what the functions do.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace foretoken {

struct CloseLibrary {
  void operator()(void* library) const;
};
using SharedLibrary = std::unique_ptr<void, CloseLibrary>;

// `bytes` are those of the file. One that ends before what its headers name would end the process with a bus error when
// the linker reads it: an Error, which begins with `who`.
void expect_whole(std::string_view bytes, const std::string& who, const std::string& remedy);

// Loads the library, with RTLD_NOW or RTLD_LAZY. What the linker objects to is an Error. Nobody can catch what the
// constructor of a global object throws, so that ends the process, with a sentence that names the library.
SharedLibrary open_library(const std::filesystem::path& path, int when, const std::string& who,
                           const std::string& remedy);

// Null where the library has no such symbol.
void* find_symbol(const SharedLibrary& library, const char* name);

}  // namespace foretoken
