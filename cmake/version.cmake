# Writes foretoken_version.h; run at every build, touches the file only when something changed.

execute_process(COMMAND git --no-optional-locks describe --always --dirty --abbrev=12 --exclude=*
  WORKING_DIRECTORY "${SOURCE}" OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT "${HEADER}" @ONLY CONTENT [[
// Made by the build: which code this program is. Only experiments/ includes it.
#pragma once

namespace foretoken {

inline constexpr const char* kVersion = "@VERSION@";
inline constexpr const char* kCommit = "@commit@";
inline constexpr const char* kCompiler = "@COMPILER@";
inline constexpr const char* kNvcc = "@NVCC@";  // its version; empty: built without CUDA
inline constexpr const char* kBuildType = "@BUILD_TYPE@";
inline constexpr const char* kSourceDirectory = R"(@SOURCE@)";

}  // namespace foretoken
]])
