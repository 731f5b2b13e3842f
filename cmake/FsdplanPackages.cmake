# What fsdplan needs from the machine, and what it can do without.

# fsdplan_find_packages(SCRIPT <script> PACKAGES "<find_package arguments>" <Debian package> ...)
#
# Finds all of them or stops with one message that names what to install; SCRIPT does it for the user.
# A macro: found packages may define functions and variables that the caller wants.
macro(fsdplan_find_packages)
  cmake_parse_arguments(FSDPLAN_FIND "" "SCRIPT" "PACKAGES" ${ARGN})
  set(FSDPLAN_FIND_MISSING "")
  while(FSDPLAN_FIND_PACKAGES)
    list(POP_FRONT FSDPLAN_FIND_PACKAGES FSDPLAN_FIND_WANTED FSDPLAN_FIND_DEBIAN)
    separate_arguments(FSDPLAN_FIND_ARGUMENTS UNIX_COMMAND "${FSDPLAN_FIND_WANTED}")
    list(GET FSDPLAN_FIND_ARGUMENTS 0 FSDPLAN_FIND_NAME)
    find_package(${FSDPLAN_FIND_ARGUMENTS} QUIET)
    if(NOT ${FSDPLAN_FIND_NAME}_FOUND)
      message(STATUS "missing: ${FSDPLAN_FIND_WANTED} (Debian: ${FSDPLAN_FIND_DEBIAN})")
      list(APPEND FSDPLAN_FIND_MISSING ${FSDPLAN_FIND_DEBIAN})
    endif()
  endwhile()
  if(FSDPLAN_FIND_MISSING)
    list(JOIN FSDPLAN_FIND_MISSING " " FSDPLAN_FIND_MISSING)
    message(FATAL_ERROR "packages are missing; run ${FSDPLAN_FIND_SCRIPT}, or\n"
                        "  apt-get install ${FSDPLAN_FIND_MISSING}")
  endif()
endmacro()

# fsdplan_component(<name> PACKAGE "<find_package arguments>" DEBIAN <package or words> [LACKS <words>])
#
# The option FSDPLAN_<name>: AUTO takes the package if it is there, ON insists on it, OFF does not look.
# Sets FSDPLAN_<name>_FOUND, and FSDPLAN_<name>_STATE to what `fsdplan --version` says about it. LACKS: what is to
# come, so that the component is not built yet even where its package is.
function(fsdplan_component name)
  cmake_parse_arguments(ARG "" "PACKAGE;DEBIAN;LACKS" "" ${ARGN})
  set(FSDPLAN_${name} AUTO CACHE STRING "${name} support: AUTO, ON or OFF")
  set_property(CACHE FSDPLAN_${name} PROPERTY STRINGS AUTO ON OFF)
  set(choice ${FSDPLAN_${name}})
  if(NOT choice MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "FSDPLAN_${name} is \"${choice}\"; expected AUTO, ON or OFF")
  endif()
  set(FSDPLAN_${name}_FOUND FALSE PARENT_SCOPE)
  if(choice STREQUAL "OFF")
    set(FSDPLAN_${name}_STATE "not built (FSDPLAN_${name}=OFF)" PARENT_SCOPE)
    return()
  endif()

  separate_arguments(wanted UNIX_COMMAND "${ARG_PACKAGE}")
  list(GET wanted 0 package)
  set(CMAKE_MESSAGE_LOG_LEVEL WARNING)  # FindMPI reports its attempts in spite of QUIET
  find_package(${wanted} QUIET)
  # Debian has protobuf's compiler in a package of its own.
  if(${package}_FOUND AND (NOT package STREQUAL "Protobuf" OR TARGET protobuf::protoc))
    # FindMPI gives its version by language.
    set(seen "found ${package} ${${package}_VERSION}${${package}_CXX_VERSION}")
    set(FSDPLAN_${name}_FOUND TRUE PARENT_SCOPE)
    set(state "built (${seen})")
  elseif(choice STREQUAL "ON")
    message(FATAL_ERROR "FSDPLAN_${name}=ON needs ${ARG_PACKAGE}, which is not here: install ${ARG_DEBIAN}, "
                        "or set FSDPLAN_${name} to AUTO or OFF")
  else()
    set(seen "${package} not found")
    set(state "not built (${seen}; install ${ARG_DEBIAN})")
  endif()
  if(ARG_LACKS)
    set(state "not built (${ARG_LACKS}; ${seen})")
  endif()
  set(FSDPLAN_${name}_STATE "${state}" PARENT_SCOPE)
endfunction()

# fsdplan_protobuf(<out> SCHEMA <file>)
#
# Sets <out> to the objects of the classes that protoc makes of the schema, and <out>_folder to where their header is.
# What protoc writes does not keep to our warnings.
function(fsdplan_protobuf out)
  cmake_parse_arguments(ARG "" "SCHEMA" "" ${ARGN})
  cmake_path(GET ARG_SCHEMA STEM stem)
  set(schema ${PROJECT_SOURCE_DIR}/${ARG_SCHEMA})
  cmake_path(GET schema PARENT_PATH folder)
  set(gen ${PROJECT_BINARY_DIR}/generated/protobuf)
  file(MAKE_DIRECTORY ${gen})
  add_custom_command(OUTPUT ${gen}/${stem}.pb.cc ${gen}/${stem}.pb.h
    COMMAND protobuf::protoc --cpp_out=${gen} -I${folder} ${schema}
    DEPENDS ${schema} VERBATIM)
  add_library(fsdplan_${stem}_schema OBJECT ${gen}/${stem}.pb.cc)
  target_link_libraries(fsdplan_${stem}_schema PRIVATE protobuf::libprotobuf-lite)
  set_target_properties(fsdplan_${stem}_schema PROPERTIES CXX_STANDARD 20)
  set(${out}_folder ${gen} PARENT_SCOPE)
  set(${out} $<TARGET_OBJECTS:fsdplan_${stem}_schema> ${gen}/${stem}.pb.h PARENT_SCOPE)
endfunction()
