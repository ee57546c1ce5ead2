# What can be switched, and the compiler flags that follow from it. Flags are put on Volta's own
# targets by volta_compile_options(), never on a project that includes Volta.
include(GNUInstallDirs)

option(VOLTA_BUILD_APPS "Build the command line" ${PROJECT_IS_TOP_LEVEL})
option(VOLTA_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(VOLTA_BUILD_EXAMPLES "Build the examples and run them as tests" ${PROJECT_IS_TOP_LEVEL})
option(VOLTA_BUILD_BENCH "Offer the target `bench` (not part of `all`)" ${PROJECT_IS_TOP_LEVEL})
option(VOLTA_INSTALL "Offer the install rules" ${PROJECT_IS_TOP_LEVEL})
option(VOLTA_FUZZ "Build the fuzzers in tests/fuzz (clang only)" OFF)
option(VOLTA_CUDA "Build the CUDA kernels of src/kernels/cuda" OFF)
option(VOLTA_PCH "Precompile the standard headers that most files include" ON)
option(VOLTA_UNITY "Compile several files of a folder as one: a whole build takes less time" ON)
option(VOLTA_WERROR "Treat warnings as errors" OFF)
option(VOLTA_COVERAGE "Instrument for source-based coverage (clang only)" OFF)
option(VOLTA_UNSAFE_BUFFERS "Fail on raw buffer access outside the fence (clang only)" OFF)
set(VOLTA_SANITIZE "" CACHE STRING "Sanitizers, e.g. address,undefined or thread")
set(VOLTA_MARCH "x86-64-v2" CACHE STRING
    "Baseline of the whole binary; kernels pick better at run time")

set(VOLTA_CLANG_ONLY_OPTIONS VOLTA_FUZZ VOLTA_COVERAGE VOLTA_UNSAFE_BUFFERS)
foreach(option IN LISTS VOLTA_CLANG_ONLY_OPTIONS)
  if(${option} AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "${option} needs clang++: configure with -DCMAKE_CXX_COMPILER=clang++-19")
  endif()
endforeach()

if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
  endif()
  find_program(VOLTA_CCACHE ccache)
  if(VOLTA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    # Paths below the project are hashed as relative ones, so that a second clone finds what the
    # first has compiled with g++ (clang's precompiled headers name their folder). Without the
    # sloppiness ccache gives up where headers are precompiled.
    # CCACHE_DEPEND: files are known by the bytes of all that they include, not by preprocessed text,
    # which drops comments and runs of spaces. g++ knows the headers in a precompiled file by
    # checksums of all their bytes, and includes one that differs a second time. The namespace keeps
    # entries that were made by preprocessed text apart.
    set(CMAKE_CXX_COMPILER_LAUNCHER
        "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
        CCACHE_DEPEND=1 CCACHE_NAMESPACE=volta-by-bytes
        CCACHE_SLOPPINESS=pch_defines,time_macros "${VOLTA_CCACHE}")
  endif()
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
endif()

set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)

# Instrumentation has to reach every object that shares memory with an instrumented one.
set(VOLTA_INSTRUMENT "")
if(VOLTA_SANITIZE)
  list(APPEND VOLTA_INSTRUMENT "-fsanitize=${VOLTA_SANITIZE}" -fno-sanitize-recover=all
       -fno-omit-frame-pointer)
endif()
if(VOLTA_COVERAGE)
  list(APPEND VOLTA_INSTRUMENT -fprofile-instr-generate -fcoverage-mapping)
endif()

# Tests ask for more memory than there is, and want the answer of the real allocator.
set(VOLTA_TEST_ENVIRONMENT
    "ASAN_OPTIONS=allocator_may_return_null=1"
    "TSAN_OPTIONS=allocator_may_return_null=1"
    "UBSAN_OPTIONS=print_stacktrace=1"
    # Whoever runs the tests may have tuned this machine.
    "VOLTA_TUNING=off")
if(VOLTA_COVERAGE)
  list(APPEND VOLTA_TEST_ENVIRONMENT
       "LLVM_PROFILE_FILE=${PROJECT_BINARY_DIR}/profiles/%4m.profraw")
endif()

# volta_compile_options(target): how all C++ of Volta is compiled.
function(volta_compile_options target)
  set(flags
      # A name of one file may hide one of another that is compiled with it.
      -Wall -Wextra -Wpedantic $<IF:$<BOOL:${VOLTA_UNITY}>,-Wno-shadow,-Wshadow>
      # A float result must not depend on which multiply-adds a compiler chose to contract;
      # kernels that want FMA write it.
      -ffp-contract=off
      # Visible from outside is what the public headers declare: their namespaces say so.
      -fvisibility=hidden -fvisibility-inlines-hidden
      # g++ 12 sees overlapping copies inside std::string where there are none (GCC bug 105651).
      $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
      # libstdc++ 12's stable_sort calls a function that it has deprecated itself.
      $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>
      # g++ collects its garbage later, so that it takes a tenth less time (kilobytes).
      $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=524288>
      $<$<CONFIG:Release>:-O2> $<$<CONFIG:Release>:-ffunction-sections>
      $<$<CONFIG:Release>:-fdata-sections>
      ${VOLTA_DEPENDENCY_FLAGS} ${VOLTA_INSTRUMENT})
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    list(APPEND flags -march=${VOLTA_MARCH})
  endif()
  if(VOLTA_WERROR)
    list(APPEND flags -Werror)
  endif()
  if(VOLTA_FUZZ)
    list(APPEND flags -fsanitize=fuzzer-no-link)
  endif()
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${flags}>")
  if(CMAKE_BUILD_TYPE STREQUAL "Debug" OR VOLTA_SANITIZE)
    target_compile_definitions(${target} PRIVATE _GLIBCXX_ASSERTIONS)
  endif()
  target_link_options(${target} PRIVATE ${VOLTA_INSTRUMENT}
                      $<$<CONFIG:Release>:-Wl,--gc-sections>)
endfunction()

# volta_strict_options(target): besides, for the product itself (src/ and apps/).
function(volta_strict_options target)
  # Clang counts sign conversions to -Wconversion, g++ does not: be alike.
  set(flags -Wconversion $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion>)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${flags}>")
endfunction()

# volta_cuda_options(target): how nvcc compiles CUDA sources of the target.
function(volta_cuda_options target)
  # Device code may call the constexpr functions of op.h and shape.h.
  set(flags --expt-relaxed-constexpr --extended-lambda
            -Xcompiler=-Wall,-Wextra,-Wshadow,-ffp-contract=off,-fvisibility=hidden)
  if(VOLTA_WERROR)
    list(APPEND flags -Werror=all-warnings)
  endif()
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${flags}>")
endfunction()

# volta_batches(result name include_dir alone sources...): files that include several of the sources
# each, so that the headers that they share are read, and the templates compiled, once. Names in unnamed
# namespaces must therefore differ within a target. Sources that match the regular expression `alone`,
# if it is not empty, stay alone: those with definitions or flags of their own, and those that take
# longest. The presets of clang compile every file alone. CMake's own unity builds include files by
# absolute paths, with which a second clone finds nothing in the compiler's cache.
function(volta_batches result name include_dir alone)
  set(batches "")
  set(together ${ARGN})
  if(alone)
    set(batches ${ARGN})
    list(FILTER batches INCLUDE REGEX "${alone}")
    list(FILTER together EXCLUDE REGEX "${alone}")
  endif()
  set(simd "")
  foreach(source IN LISTS together)
    file(STRINGS "${source}" reads_highway REGEX "^#include \"hwy/foreach_target.h\"")
    if(reads_highway)
      list(APPEND simd "${source}")
      list(REMOVE_ITEM together "${source}")
    endif()
  endforeach()
  volta_write_batches(batches "${name}" "${include_dir}" FALSE ${together})
  volta_write_batches(batches "${name}_simd" "${include_dir}" TRUE ${simd})
  set(${result} ${batches} PARENT_SCOPE)
endfunction()

# volta_write_batches(result name include_dir simd sources...): appends to `result` files that include
# up to sixteen of the sources each, about as many in each file. With `simd`, Highway reads the file
# once for each instruction set, as it does a single source, so that its headers are read (1.6 s) once
# a file; these are up to eight.
function(volta_write_batches result name include_dir simd)
  set(rest ${ARGN})
  set(files ${${result}})
  set(folder "${PROJECT_BINARY_DIR}/batches")
  if(simd)
    set(most 8)
  else()
    set(most 16)
  endif()
  list(LENGTH rest length)
  math(EXPR batches "(${length} + ${most} - 1) / ${most}")
  if(batches)
    math(EXPR count "(${length} + ${batches} - 1) / ${batches}")
  endif()
  set(number 0)
  while(rest)
    list(SUBLIST rest 0 ${count} batch)
    list(REMOVE_ITEM rest ${batch})
    set(text "")
    foreach(source IN LISTS batch)
      file(RELATIVE_PATH source "${include_dir}" "${source}")
      string(APPEND text "#include \"${source}\"\n")
    endforeach()
    if(simd)
      # Each source names itself here.
      set(again "#undef HWY_TARGET_INCLUDE\n#define HWY_TARGET_INCLUDE \"${name}_${number}.cc\"\n")
      set(text "${again}#include \"hwy/foreach_target.h\"\n${text}${again}")
    endif()
    file(CONFIGURE OUTPUT "${folder}/${name}_${number}.cc" CONTENT "${text}" @ONLY)
    list(APPEND files "${folder}/${name}_${number}.cc")
    math(EXPR number "${number} + 1")
  endwhile()
  set(${result} ${files} PARENT_SCOPE)
endfunction()

# volta_precompile(target owner headers...): compiles the headers that nearly every file of a target
# includes once, in the target `owner`, for all targets compiled with the same flags. Every file
# still includes what it uses: scripts/lint and scripts/check_headers compile without this.
function(volta_precompile target owner)
  if(NOT VOLTA_PCH)
    return()
  endif()
  if(target STREQUAL owner)
    list(TRANSFORM ARGN REPLACE "(.+)" "<\\1>")
    target_precompile_headers(${target} PRIVATE ${ARGN})
  else()
    target_precompile_headers(${target} REUSE_FROM ${owner})
  endif()
  # ccache asks for the flags: g++ keeps the #pragma that names the precompiled file, and clang no
  # time of its writing in it.
  target_compile_options(
    ${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>
                      "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
endfunction()
