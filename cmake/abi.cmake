# Writes foretoken_abi.h: what a plugin and the program that loads it must agree on. Run at every build, touches the
# file only when something changed. The headers that are installed count, without their comments.

file(GLOB_RECURSE headers RELATIVE "${SOURCE}" "${SOURCE}/kernels/*.h" "${SOURCE}/framework/*.h"
     "${SOURCE}/drafters/*.h")
list(FILTER headers EXCLUDE REGEX "^kernels/.*/")
list(SORT headers)
set(all "")
foreach(header IN LISTS headers)
  file(READ "${SOURCE}/${header}" text)
  string(REGEX REPLACE "//[^\n]*" "" text "${text}")
  string(REGEX REPLACE "[ \t\n]+" " " text "${text}")
  string(APPEND all "${header}\n${text}\n")
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING "${hash}" 0 12 hash)
file(CONFIGURE OUTPUT "${HEADER}" @ONLY CONTENT [[
// Made by the build: what a plugin and the program that loads it must agree on.
#pragma once
#include <nlohmann/json.hpp>

#if defined(__clang__)
#define FORETOKEN_COMPILER __VERSION__
#else
#define FORETOKEN_COMPILER "GCC " __VERSION__
#endif
#if defined(_GLIBCXX_RELEASE)
#define FORETOKEN_LIBRARY "libstdc++ with strings of ABI " FORETOKEN_TEXT(_GLIBCXX_USE_CXX11_ABI)
#else
#define FORETOKEN_LIBRARY "libc++ of ABI " FORETOKEN_TEXT(_LIBCPP_ABI_VERSION)
#endif
#if defined(_GLIBCXX_DEBUG)
#define FORETOKEN_CONTAINERS "checked containers"
#else
#define FORETOKEN_CONTAINERS "plain containers"
#endif
#define FORETOKEN_JSON                                                                        \
  FORETOKEN_TEXT(NLOHMANN_JSON_VERSION_MAJOR) "." FORETOKEN_TEXT(NLOHMANN_JSON_VERSION_MINOR) \
  "." FORETOKEN_TEXT(NLOHMANN_JSON_VERSION_PATCH)
#define FORETOKEN_TEXT(x) FORETOKEN_TEXT_OF(x)
#define FORETOKEN_TEXT_OF(x) #x

namespace foretoken {

// Not `inline`: the dynamic linker would give a plugin the program's.
constexpr const char kAbi[] = "foretoken @VERSION@; headers @hash@; " FORETOKEN_COMPILER "; " FORETOKEN_LIBRARY "; "
                              FORETOKEN_CONTAINERS "; nlohmann/json " FORETOKEN_JSON;

}  // namespace foretoken
]])
