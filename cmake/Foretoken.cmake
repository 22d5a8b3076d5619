# What every target shares: language, warnings, numerics, sanitizers, and the two functions that make a target.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1 -fno-omit-frame-pointer")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g1 -fno-omit-frame-pointer")
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

if(FORETOKEN_CUDA)
  include(ForetokenCuda)
endif()

add_library(foretoken_options INTERFACE)
target_include_directories(foretoken_options INTERFACE "${PROJECT_SOURCE_DIR}")
# Decisions must be equal bit for bit on every device, so no compiler may fuse a * b + c where we did not ask.
target_compile_options(foretoken_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-ffp-contract=off>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${FORETOKEN_WERROR}>>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
  # These see overlaps and overruns in std::string that are not there (GCC bugs 105329 and 105651).
  target_compile_options(foretoken_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict;-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # libstdc++'s std::stable_sort calls what libstdc++ deprecates.
  target_compile_options(foretoken_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-deprecated-declarations>)
endif()
if(FORETOKEN_SANITIZE)
  target_compile_options(foretoken_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${FORETOKEN_SANITIZE};-fno-sanitize-recover=all>
    # GCC's sanitizers make it see uninitialized values where there are none.
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
  target_link_options(foretoken_options INTERFACE -fsanitize=${FORETOKEN_SANITIZE})
endif()

# The static library of one folder: a name, then sources.
function(foretoken_library name)
  if(NOT ARGN)
    file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/empty.cpp" CONTENT "")
    set(ARGN "${CMAKE_CURRENT_BINARY_DIR}/empty.cpp")
  endif()
  add_library(${name} STATIC ${ARGN})
  target_link_libraries(${name} PUBLIC foretoken_options)
endfunction()

# Compiles a target's sources in batches: most of a compiler's time goes into headers and templates that they share.
# Names in anonymous namespaces are then unique within a folder. A source with compile options of its own stays alone.
option(FORETOKEN_UNITY "Compile sources in batches" ON)
function(foretoken_batches name)
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${FORETOKEN_UNITY} UNITY_BUILD_BATCH_SIZE 6)
endfunction()

# A target for a package that Debian ships without CMake files: a name, a header, and a library where there is one.
function(foretoken_find name header)
  find_path(${name}_INCLUDE_DIR ${header} REQUIRED)
  add_library(${name} INTERFACE)
  target_include_directories(${name} SYSTEM INTERFACE "${${name}_INCLUDE_DIR}")
  if(ARGN)
    find_library(${name}_LIBRARY ${ARGN} REQUIRED)
    target_link_libraries(${name} INTERFACE "${${name}_LIBRARY}")
  endif()
endfunction()
