# Install: the program, every stage's library and headers, and a CMake package that finds them.
include(CMakePackageConfigHelpers)

get_property(fsdplan_stages GLOBAL PROPERTY FSDPLAN_LIBRARIES)
add_library(fsdplan_fsdplan INTERFACE)
add_library(fsdplan::fsdplan ALIAS fsdplan_fsdplan)
target_link_libraries(fsdplan_fsdplan INTERFACE ${fsdplan_stages})
set_target_properties(fsdplan_fsdplan PROPERTIES EXPORT_NAME fsdplan)

# The packages behind the static libraries' own link libraries: ZLIB::ZLIB comes from find_package(ZLIB),
# yaml-cpp from find_package(yaml-cpp).
set(dependencies "")
set(find_modules "")
foreach(stage IN LISTS fsdplan_stages)
  get_target_property(linked ${stage} LINK_LIBRARIES)
  foreach(library IN LISTS linked)
    if(NOT library MATCHES "^(fsdplan|[$])" AND library MATCHES "^([A-Za-z0-9_-]+)")
      set(package ${CMAKE_MATCH_1})
      if(package STREQUAL "protobuf")
        set(package Protobuf)  # the package is spelled otherwise than its targets
      endif()
      list(APPEND dependencies "find_dependency(${package})\n")
      if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/Find${package}.cmake)
        list(APPEND find_modules ${CMAKE_CURRENT_LIST_DIR}/Find${package}.cmake)
      endif()
    endif()
  endforeach()
endforeach()
list(REMOVE_DUPLICATES dependencies)
list(JOIN dependencies "" dependencies)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/fsdplan)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/fsdplanConfig.cmake @ONLY CONTENT [=[
include(CMakeFindDependencyMacro)
list(PREPEND CMAKE_MODULE_PATH ${CMAKE_CURRENT_LIST_DIR})
@dependencies@list(POP_FRONT CMAKE_MODULE_PATH)
include(${CMAKE_CURRENT_LIST_DIR}/fsdplanTargets.cmake)
]=])
write_basic_package_version_file(${PROJECT_BINARY_DIR}/fsdplanConfigVersion.cmake COMPATIBILITY SameMinorVersion)

install(TARGETS fsdplan)
if(TARGET fsdplan_mpi)
  install(TARGETS fsdplan_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/fsdplan)
endif()
install(TARGETS fsdplan_fsdplan ${fsdplan_stages} EXPORT fsdplanTargets FILE_SET HEADERS)
install(EXPORT fsdplanTargets NAMESPACE fsdplan:: DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/fsdplanConfig.cmake ${PROJECT_BINARY_DIR}/fsdplanConfigVersion.cmake
        ${find_modules} DESTINATION ${package_dir})
