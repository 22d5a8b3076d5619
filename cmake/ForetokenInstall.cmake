# What `cmake --install` puts where: the program, the headers that a plugin includes, the templates, and the CMake
# package with its one target, foretoken::plugin. A plugin links no library: the program that loads it has the whole
# framework and exports it, so there is one copy of everything, the program stays one file, and a plugin cannot meet
# another build of it.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

add_library(foretoken_plugin INTERFACE)
set_target_properties(foretoken_plugin PROPERTIES EXPORT_NAME plugin INTERFACE_POSITION_INDEPENDENT_CODE ON)
# <foretoken/plugin.h>, and what that includes.
target_include_directories(foretoken_plugin INTERFACE
  "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/foretoken>")
target_compile_features(foretoken_plugin INTERFACE cxx_std_20)
# Decisions must be equal bit for bit, in a plugin as elsewhere.
target_compile_options(foretoken_plugin INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
# A plugin calls its own function, also where the program has one of the same name.
target_link_options(foretoken_plugin INTERFACE LINKER:-Bsymbolic-functions)
target_link_libraries(foretoken_plugin INTERFACE nlohmann_json::nlohmann_json)

# The headers of cmake/abi.cmake, as they lie in the tree, behind the one that a plugin includes.
file(GLOB kernel_headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/kernels/*.h")
set(headers "${CMAKE_INSTALL_INCLUDEDIR}/foretoken")
install(FILES ${kernel_headers} DESTINATION "${headers}/kernels")
install(DIRECTORY framework DESTINATION "${headers}" FILES_MATCHING PATTERN "*.h" PATTERN include EXCLUDE)
install(DIRECTORY drafters DESTINATION "${headers}" FILES_MATCHING PATTERN "*.h" PATTERN include EXCLUDE
  PATTERN "template*" EXCLUDE)
install(DIRECTORY framework/include/ drafters/include/ DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(FILES "${PROJECT_BINARY_DIR}/abi/foretoken_abi.h" DESTINATION "${headers}")

install(TARGETS foretoken RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(DIRECTORY drafters/template drafters/template_tree drafters/template_model drafters/template_head
  drafters/template_policy
  DESTINATION "${CMAKE_INSTALL_DATADIR}/foretoken/drafters")
install(DIRECTORY verifiers/template DESTINATION "${CMAKE_INSTALL_DATADIR}/foretoken/verifiers")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")

set(package "${CMAKE_INSTALL_LIBDIR}/cmake/foretoken")
install(TARGETS foretoken_plugin EXPORT foretokenTargets)
install(EXPORT foretokenTargets NAMESPACE foretoken:: DESTINATION "${package}")
configure_package_config_file(cmake/foretokenConfig.cmake.in "${PROJECT_BINARY_DIR}/foretokenConfig.cmake"
  INSTALL_DESTINATION "${package}" NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/foretokenConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/foretokenConfig.cmake" "${PROJECT_BINARY_DIR}/foretokenConfigVersion.cmake"
  DESTINATION "${package}")
