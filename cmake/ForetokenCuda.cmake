# The CUDA language. Without a GPU the binary is built for all that the kernels can run on.

include(GpuArchitectures)
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(nvcc "$ENV{CUDACXX}")
  if(CMAKE_CUDA_COMPILER)
    set(nvcc "${CMAKE_CUDA_COMPILER}")
  endif()
  foretoken_cuda_architectures(CMAKE_CUDA_ARCHITECTURES "${nvcc}")
  message(STATUS "CUDA architectures: ${CMAKE_CUDA_ARCHITECTURES}")
endif()
enable_language(CUDA)
# CMake 3.25 does not know that nvcc speaks C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA_STANDARD 20)
string(APPEND CMAKE_CUDA_FLAGS " --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra")
set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG")
find_package(CUDAToolkit REQUIRED)

# Sources of `target` that launch templates over a Lane: nvcc compiles them, without contraction on either side. 20011
# and 20014 warn of the host's own lanes, which no kernel instantiates.
function(foretoken_lanes target)
  set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CUDA SKIP_UNITY_BUILD_INCLUSION ON)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;--expt-relaxed-constexpr;--diag-suppress=20011,20014;-Xcompiler=-ffp-contract=off>")
endfunction()
