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

# fsdplan_component(<name> WHAT <words> PACKAGE "<find_package arguments>" DEBIAN <package or words>)
#
# The option FSDPLAN_<name>: AUTO takes the package if it is there, ON insists on it, OFF does not look.
# Sets FSDPLAN_<name>_STATE to what `fsdplan --version` says about it. WHAT is the part of fsdplan that is to
# come: this version has none of them, and the state says so.
function(fsdplan_component name)
  cmake_parse_arguments(ARG "" "WHAT;PACKAGE;DEBIAN" "" ${ARGN})
  set(FSDPLAN_${name} AUTO CACHE STRING "${name} support: AUTO, ON or OFF")
  set_property(CACHE FSDPLAN_${name} PROPERTY STRINGS AUTO ON OFF)
  set(choice ${FSDPLAN_${name}})
  if(NOT choice MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "FSDPLAN_${name} is \"${choice}\"; expected AUTO, ON or OFF")
  endif()
  if(choice STREQUAL "OFF")
    set(FSDPLAN_${name}_STATE "not built (FSDPLAN_${name}=OFF)" PARENT_SCOPE)
    return()
  endif()

  separate_arguments(wanted UNIX_COMMAND "${ARG_PACKAGE}")
  list(GET wanted 0 package)
  set(CMAKE_MESSAGE_LOG_LEVEL WARNING)  # FindMPI reports its attempts in spite of QUIET
  find_package(${wanted} QUIET)
  if(${package}_FOUND)
    # FindMPI gives its version by language.
    set(version "${${package}_VERSION}${${package}_CXX_VERSION}")
    set(seen "found ${package} ${version}")
  elseif(choice STREQUAL "ON")
    message(FATAL_ERROR "FSDPLAN_${name}=ON needs ${ARG_PACKAGE}, which is not here: install ${ARG_DEBIAN}, "
                        "or set FSDPLAN_${name} to AUTO or OFF")
  else()
    set(seen "${package} not found")
  endif()
  set(FSDPLAN_${name}_STATE "not built (no ${ARG_WHAT} in this version; ${seen})" PARENT_SCOPE)
endfunction()
