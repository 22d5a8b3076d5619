# Sets `result` to the architectures of this machine's GPUs that `nvcc` can build for, for CMAKE_CUDA_ARCHITECTURES; to
# nothing without a GPU. Not `native`, which is 90 on a Hopper: its warpgroup products and most of what makes it fast
# are in 90a alone, and no fallback is as fast.
function(foretoken_gpu_architectures result nvcc)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    RESULT_VARIABLE no_gpu OUTPUT_VARIABLE answer ERROR_QUIET)
  set(${result} "" PARENT_SCOPE)
  if(NOT no_gpu EQUAL 0)
    return()
  endif()
  execute_process(COMMAND ${nvcc} --list-gpu-arch RESULT_VARIABLE no_list OUTPUT_VARIABLE known ERROR_QUIET)
  set(architectures)
  string(REPLACE "\n" ";" lines "${answer}")
  foreach(line IN LISTS lines)
    if(NOT line MATCHES "^ *([0-9]+)\\.([0-9]) *$")
      continue()
    endif()
    set(architecture "${CMAKE_MATCH_1}${CMAKE_MATCH_2}")
    if(no_list EQUAL 0 AND NOT known MATCHES "compute_${architecture}(\n|$)")
      message(WARNING "this nvcc cannot build for the GPU of compute capability ${line}: it is left out")
      continue()
    endif()
    string(REGEX REPLACE "^90$" "90a" architecture "${architecture}")
    list(APPEND architectures "${architecture}-real")
  endforeach()
  list(REMOVE_DUPLICATES architectures)
  set(${result} "${architectures}" PARENT_SCOPE)
endfunction()

# Sets `result` to the architectures that a build is for: those of the variable CUDAARCHS of the environment, as CMake
# reads it; else those of this machine's GPUs, or, without one, all that the
# kernels can run on. Code of 8.0 runs on 8.6, 8.7 and 8.9 as well; for GPUs after 9.0 (10.0, 12.0 and later ones) the
# driver compiles the PTX of 9.0, with its copy engine and clusters, when the program starts.
function(foretoken_cuda_architectures result nvcc)
  if(DEFINED ENV{CUDAARCHS})
    set(${result} "$ENV{CUDAARCHS}" PARENT_SCOPE)
    return()
  endif()
  foretoken_gpu_architectures(architectures "${nvcc}")
  if(NOT architectures)
    set(architectures 80-real 90a-real 90-virtual)
  endif()
  set(${result} "${architectures}" PARENT_SCOPE)
endfunction()
