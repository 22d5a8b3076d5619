// A shared library: checks that its file is complete, loads it, and finds its functions. This module knows ELF and the
// dynamic linker; it must not know what the functions do.
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

// `bytes`: the content of the file. A file that ends before a part that its headers name is an Error, whose message
// begins with `who`: the dynamic linker would end the process with a bus error when it reads it.
void expect_whole(std::string_view bytes, const std::string& who, const std::string& remedy);

// Loads the library. `when`: RTLD_NOW or RTLD_LAZY. A failure of the dynamic linker is an Error. An exception of a
// global object's constructor cannot be caught: it terminates the process, after a message that names the library.
SharedLibrary open_library(const std::filesystem::path& path, int when, const std::string& who,
                           const std::string& remedy);

// Null where the library has no such symbol.
void* find_symbol(const SharedLibrary& library, const char* name);

}  // namespace foretoken
