# Flags that belong to single folders and files of src/. Included by src/CMakeLists.txt. The command
# line takes the flags of the fence from here, too.

# Kernels: optimised hard.
get_target_property(kernels_type volta_kernels_cpu TYPE)
if(kernels_type STREQUAL "OBJECT_LIBRARY")
  target_compile_options(volta_kernels_cpu PRIVATE $<$<CONFIG:Release>:-O3>)
  # Files that Highway reads several times are found by their names in this folder.
  target_include_directories(volta_kernels_cpu PRIVATE "${PROJECT_BINARY_DIR}/batches")
  # Where whole vectors go through long chains of instructions, g++ is asked to mix the chains of
  # several before it assigns registers (clang does so unasked): a fifth to a third faster.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    foreach(file IN ITEMS cross_entropy dropout gated softmax unary)
      set_property(SOURCE kernels/cpu/${file}.cc APPEND PROPERTY COMPILE_OPTIONS -fschedule-insns)
    endforeach()
  endif()
endif()

# The version reaches one file only, so that a commit does not rebuild the world.
find_package(Git QUIET)
set(git_hash "")
if(GIT_FOUND)
  execute_process(
    COMMAND "${GIT_EXECUTABLE}" -C "${PROJECT_SOURCE_DIR}" rev-parse --short=12 HEAD
    OUTPUT_VARIABLE git_hash OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(
    COMMAND "${GIT_EXECUTABLE}" -C "${PROJECT_SOURCE_DIR}" rev-parse --path-format=absolute
            --git-path logs/HEAD
    OUTPUT_VARIABLE git_log OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(git_log AND EXISTS "${git_log}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${git_log}")
  endif()
endif()
set_property(SOURCE base/version.cc APPEND PROPERTY COMPILE_DEFINITIONS
             VOLTA_VERSION="${PROJECT_VERSION}" VOLTA_GIT_HASH="${git_hash}")

# What the tuner measured belongs to the kernels it was measured with. Only one file sees the hash.
# Products of integers are not tuned.
file(GLOB matmul_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/kernels/cpu/matmul*"
     "${CMAKE_CURRENT_SOURCE_DIR}/kernels/cpu/math-inl.h"
     "${CMAKE_CURRENT_SOURCE_DIR}/kernels/cpu/amx*")
list(FILTER matmul_sources EXCLUDE REGEX "matmul_quant")
set(kernel_hashes "")
foreach(source IN LISTS matmul_sources)
  file(SHA256 "${source}" source_hash)
  string(APPEND kernel_hashes "${source_hash}")
endforeach()
string(SHA256 kernels_hash "${kernel_hashes}")
string(SUBSTRING "${kernels_hash}" 0 16 kernels_hash)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${matmul_sources})
set_property(SOURCE tuner/kernels_hash.cc APPEND PROPERTY COMPILE_DEFINITIONS
             VOLTA_KERNELS_HASH="${kernels_hash}")

# The fence: raw memory is allowed in src/kernels, src/device and the files below, nowhere else in src
# or apps. volta_fence(target) makes any other use of it in a target an error.
function(volta_fence target)
  if(VOLTA_UNSAFE_BUFFERS)
    target_compile_options(${target} PRIVATE -Wunsafe-buffer-usage -Werror=unsafe-buffer-usage)
  endif()
endfunction()
if(VOLTA_UNSAFE_BUFFERS)
  foreach(module IN ITEMS base text tensor ops graph nn tuner formats train)
    foreach(target IN ITEMS volta_${module} volta_${module}_fast)
      set(type "")
      if(TARGET ${target})
        get_target_property(type ${target} TYPE)
      endif()
      if(type STREQUAL "OBJECT_LIBRARY")
        volta_fence(${target})
      endif()
    endforeach()
  endforeach()
  file(GLOB fenced CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/../src/base/memory*.cc"
       "${CMAKE_CURRENT_LIST_DIR}/../src/tensor/buffer*.cc")
  set_property(SOURCE ${fenced} APPEND PROPERTY COMPILE_OPTIONS -Wno-unsafe-buffer-usage)
endif()
