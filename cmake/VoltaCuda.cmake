# The CUDA backend: with VOLTA_CUDA=ON, CUDA becomes a language of this build and VOLTA_HAS_CUDA is
# set. src/CMakeLists.txt then compiles src/kernels/cuda and the files src/device/cuda_*.cc instead of
# src/device/cuda_device_none.cc.
set(VOLTA_HAS_CUDA OFF)
if(VOLTA_CUDA)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    # Kernels for Ampere, kernels for Hopper (90a has its tensor-core instructions), and code that
    # the driver compiles for newer GPUs.
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real 80-virtual)
  endif()
  if(CMAKE_CXX_COMPILER_LAUNCHER AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER "${CMAKE_CXX_COMPILER_LAUNCHER}")
  endif()
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 20)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has C++20.
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  find_package(CUDAToolkit REQUIRED)
  set(VOLTA_HAS_CUDA ON)
endif()
