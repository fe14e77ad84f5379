# Installs libxformc, its headers and program, and what find_package(xformc) and pkg-config read. Nothing that is
# installed names the prefix, so the folder can be moved; a wheel has the same tree in its folder xformc/.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(xformc_package ${CMAKE_INSTALL_LIBDIR}/cmake/xformc)

get_filename_component(xformc_headers ${CMAKE_CURRENT_LIST_DIR}/../include ABSOLUTE)
target_include_directories(xformc PUBLIC $<BUILD_INTERFACE:${xformc_headers}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
add_library(xformc::xformc ALIAS xformc)  # as find_package has it
install(TARGETS xformc EXPORT xformc LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT xformc NAMESPACE xformc:: FILE xformcTargets.cmake DESTINATION ${xformc_package})
install(DIRECTORY ${xformc_headers}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET xformc-run)
  file(RELATIVE_PATH up /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
  set_target_properties(xformc-run PROPERTIES INSTALL_RPATH "$ORIGIN/${up}")
  install(TARGETS xformc-run RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/xformcConfig.cmake.in ${PROJECT_BINARY_DIR}/xformcConfig.cmake
  INSTALL_DESTINATION ${xformc_package} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/xformcConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/xformcConfig.cmake ${PROJECT_BINARY_DIR}/xformcConfigVersion.cmake
  DESTINATION ${xformc_package})

file(RELATIVE_PATH xformc_prefix_of_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${CMAKE_CURRENT_LIST_DIR}/xformc.pc.in ${PROJECT_BINARY_DIR}/xformc.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/xformc.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
