# install and find_package(Volta). Headers land in <prefix>/include/volta, which is the include
# directory itself: installed or not, they are included as "base/result.h".
if(NOT VOLTA_INSTALL)
  return()
endif()
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Volta")
install(TARGETS volta_static volta_shared EXPORT VoltaTargets)
install(EXPORT VoltaTargets NAMESPACE Volta:: DESTINATION "${package_dir}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/src/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/volta"
        FILES_MATCHING PATTERN "*.h")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/VoltaConfig.cmake.in"
                              "${PROJECT_BINARY_DIR}/VoltaConfig.cmake"
                              INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/VoltaConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/VoltaConfig.cmake"
              "${PROJECT_BINARY_DIR}/VoltaConfigVersion.cmake" DESTINATION "${package_dir}")
