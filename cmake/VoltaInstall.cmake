# install, find_package(Volta) and `pkg-config volta`. Programs include <volta/volta.h>, installed or not.
if(NOT VOLTA_INSTALL)
  return()
endif()
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Volta")
install(TARGETS volta_static volta_shared EXPORT VoltaTargets)
install(EXPORT VoltaTargets NAMESPACE Volta:: DESTINATION "${package_dir}")
set(headers "${PROJECT_BINARY_DIR}/installed_headers")
install(CODE "set(VOLTA_SOURCE \"${PROJECT_SOURCE_DIR}/src\")
set(VOLTA_HEADERS \"${headers}\")
include(\"${CMAKE_CURRENT_LIST_DIR}/InstallHeaders.cmake\")")
install(DIRECTORY "${headers}/volta" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/VoltaConfig.cmake.in"
                              "${PROJECT_BINARY_DIR}/VoltaConfig.cmake"
                              INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/VoltaConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/VoltaConfig.cmake"
              "${PROJECT_BINARY_DIR}/VoltaConfigVersion.cmake" DESTINATION "${package_dir}")

# The file stands in <libdir>/pkgconfig, from where it finds the prefix, wherever that was moved.
file(RELATIVE_PATH volta_pc_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" volta_pc_prefix "${volta_pc_prefix}")
set(volta_pc_libs -pthread)
if(VOLTA_HAS_CUDA)
  string(APPEND volta_pc_libs " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt")
endif()
configure_file("${CMAKE_CURRENT_LIST_DIR}/volta.pc.in" "${PROJECT_BINARY_DIR}/volta.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/volta.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
