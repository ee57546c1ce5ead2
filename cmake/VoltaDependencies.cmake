# The libraries that Volta links, all packaged by Debian and Ubuntu (scripts/bootstrap installs
# them). VoltaConfig.cmake.in asks for the same ones on behalf of an installed Volta.

# Imported targets must be seen by a project that includes Volta with add_subdirectory().
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
set(THREADS_PREFER_PTHREAD_FLAG ON)

find_package(Threads REQUIRED)
find_package(fmt CONFIG REQUIRED)
find_package(hwy CONFIG REQUIRED)
# Only the headers of Highway: its library spends 2 ms at the start of every program on measuring
# the CPU's clock.
add_library(volta_highway INTERFACE)
target_include_directories(
  volta_highway SYSTEM INTERFACE $<TARGET_PROPERTY:hwy::hwy,INTERFACE_INCLUDE_DIRECTORIES>)
# Highway is held to SSE4, AVX2 and AVX3, picked at run time. Without HWY_DISABLE_PCLMUL_AES, a
# x86-64-v2 baseline would make it fall back to SSSE3 for want of PCLMUL and AES. Highway 1.0.7 has
# more targets than 1.0.3: those above AVX3, whose bits are lower.
target_compile_definitions(volta_highway INTERFACE HWY_DISABLE_PCLMUL_AES
                           "HWY_DISABLED_TARGETS=(HWY_AVX3 - 1)")
find_package(simdjson CONFIG REQUIRED)
# The header of simdjson 3.6 (Ubuntu 24.04) has a template that nothing uses and that clang 19 refuses.
set(VOLTA_DEPENDENCY_FLAGS "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  include(CheckCXXSourceCompiles)
  include(CMakePushCheckState)
  cmake_push_check_state(RESET)
  set(CMAKE_REQUIRED_FLAGS -std=c++20)
  set(CMAKE_REQUIRED_LIBRARIES simdjson::simdjson)
  check_cxx_source_compiles("#include <simdjson.h>\nint main() {}" VOLTA_SIMDJSON_COMPILES)
  cmake_pop_check_state()
  if(NOT VOLTA_SIMDJSON_COMPILES)
    # Then templates are examined where they are used.
    set(VOLTA_DEPENDENCY_FLAGS -fdelayed-template-parsing -Wno-delayed-template-parsing-in-cxx20)
  endif()
endif()
find_package(PkgConfig REQUIRED)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET GLOBAL libutf8proc)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET GLOBAL libxxhash)
