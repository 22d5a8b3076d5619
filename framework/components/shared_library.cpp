#include "framework/components/shared_library.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include <dlfcn.h>
#include <link.h>

#include "framework/components/thrown.h"
#include "framework/text/printable.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

thread_local std::string loading;  // the library, for messages, while the linker runs its constructors

[[noreturn]] void report_throwing_constructor() {
  std::fprintf(
      stderr,
      "foretoken: %s cannot be loaded: a constructor of its global objects threw: %s; do in foretoken_plugin() "
      "what can fail\n",
      printable(loading).c_str(), printable(thrown()).c_str());
  std::abort();
}

// Names the library in the process's last message, as long as it lives.
class TerminateHandler {
 public:
  explicit TerminateHandler(const std::string& who) : before_(std::set_terminate(report_throwing_constructor)) {
    loading = who;
  }
  ~TerminateHandler() { std::set_terminate(before_); }

 private:
  std::terminate_handler before_;
};

template <class T> T read(std::string_view bytes, std::uint64_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

}  // namespace

void CloseLibrary::operator()(void* library) const { dlclose(library); }

void expect_whole(std::string_view bytes, const std::string& who, const std::string& remedy) {
  constexpr int kClass = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
  using Header = ElfW(Ehdr);
  using Segment = ElfW(Phdr);
  if (bytes.size() < sizeof(Header) || !bytes.starts_with(ELFMAG) || bytes[EI_CLASS] != kClass)
    return;  // the dynamic linker reports what is wrong
  const auto holds = [&](std::uint64_t begin, std::uint64_t length) {
    return begin <= bytes.size() && length <= bytes.size() - begin;
  };
  const auto header = read<Header>(bytes, 0);
  bool whole = header.e_phentsize == sizeof(Segment) && holds(header.e_phoff, header.e_phnum * sizeof(Segment)) &&
               holds(header.e_shoff, std::uint64_t(header.e_shnum) * header.e_shentsize);
  for (int i = 0; whole && i < header.e_phnum; ++i) {
    const auto segment = read<Segment>(bytes, header.e_phoff + std::uint64_t(i) * sizeof(Segment));
    whole = holds(segment.p_offset, segment.p_filesz);
  }
  if (!whole)
    throw Error(who + " is truncated: its headers name more than the " + std::to_string(bytes.size()) +
                " bytes that the file has; copy it again, or " + remedy);
}

SharedLibrary open_library(const std::filesystem::path& path, int when, const std::string& who,
                           const std::string& remedy) {
  const TerminateHandler handler(who);
  SharedLibrary library(dlopen(std::filesystem::absolute(path).c_str(), when | RTLD_LOCAL));
  if (library) return library;
  std::string why = dlerror();
  const bool missing = why.find("undefined symbol") != std::string::npos;
  if (const auto colon = why.find(": "); colon != std::string::npos)
    why.erase(0, colon + 2);  // the path, which `who` names
  throw Error(who + " cannot be loaded: " + why +
              (missing ? "; define it, or, where it is one of foretoken's own, "
                       : "; name a shared library (.so) of this machine, or ") +
              remedy);
}

void* find_symbol(const SharedLibrary& library, const char* name) { return dlsym(library.get(), name); }

}  // namespace foretoken
