# How a stage of the pipeline is declared.

# Sets <out> to whether linking this target links nothing.
function(fsdplan_header_only out target)
  get_target_property(type ${target} TYPE)
  get_target_property(linked ${target} INTERFACE_LINK_LIBRARIES)
  if(type STREQUAL "INTERFACE_LIBRARY" AND NOT linked)
    set(${out} TRUE PARENT_SCOPE)
  else()
    set(${out} FALSE PARENT_SCOPE)
  endif()
endfunction()

# fsdplan_library(<stage> [SOURCES ...] HEADERS ... [PUBLIC targets] [PRIVATE targets])
#
# A static library fsdplan::<stage> of all src/<stage>/*.cpp. SOURCES are those of its registries and what is
# generated. HEADERS are public and relative to include/fsdplan.
function(fsdplan_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;HEADERS;PUBLIC;PRIVATE" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cpp)
  add_library(fsdplan_${name} STATIC ${sources} ${ARG_SOURCES})
  add_library(fsdplan::${name} ALIAS fsdplan_${name})
  list(TRANSFORM ARG_HEADERS PREPEND ${PROJECT_SOURCE_DIR}/include/fsdplan/)
  target_sources(fsdplan_${name} PUBLIC FILE_SET HEADERS
                 BASE_DIRS ${PROJECT_SOURCE_DIR}/include FILES ${ARG_HEADERS})
  target_compile_features(fsdplan_${name} PUBLIC cxx_std_20)
  target_include_directories(fsdplan_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  foreach(library IN LISTS ARG_PRIVATE)
    fsdplan_header_only(header_only ${library})
    if(header_only)
      # Its headers are used in our .cpp files only: those who link an installed fsdplan need not have it.
      set(library $<BUILD_INTERFACE:${library}>)
    endif()
    target_link_libraries(fsdplan_${name} PRIVATE ${library})
  endforeach()
  target_link_libraries(fsdplan_${name} PUBLIC ${ARG_PUBLIC} PRIVATE $<BUILD_INTERFACE:fsdplan_options>)
  set_target_properties(fsdplan_${name} PROPERTIES EXPORT_NAME ${name} CXX_EXTENSIONS OFF)
  set_property(GLOBAL APPEND PROPERTY FSDPLAN_LIBRARIES fsdplan_${name})
endfunction()

# fsdplan_registry(<out> DIR <folder> STAGE <stage> TYPE <type> HEADER <header>)
#
# Every .cpp file of the folder defines `extern const TYPE <file stem>` in fsdplan::builtin::<stage>.
# Sets <out> to these files plus a generated one that defines
# `std::span<const TYPE* const> fsdplan::builtin::<out>()`, sorted by file name.
# Adding an entry is adding a file: nothing registers itself, nothing else is edited.
function(fsdplan_registry out)
  cmake_parse_arguments(ARG "" "DIR;STAGE;TYPE;HEADER" "" ${ARGN})
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${ARG_DIR}/*.cpp)
  list(SORT files)
  list(LENGTH files n)
  set(decls "")
  set(items "")
  foreach(f IN LISTS files)
    cmake_path(GET f STEM stem)
    string(APPEND decls "extern const ${ARG_TYPE} ${stem};\n")
    string(APPEND items "        &${ARG_STAGE}::${stem},\n")
  endforeach()
  set(stage ${ARG_STAGE})
  set(type ${ARG_TYPE})
  set(header ${ARG_HEADER})
  set(gen ${PROJECT_BINARY_DIR}/generated/registry_${out}.cpp)
  file(CONFIGURE OUTPUT ${gen} @ONLY CONTENT [=[#include <array>
#include <span>

#include "@header@"

namespace fsdplan::builtin {
namespace @stage@ {
@decls@}  // namespace @stage@

std::span<const @type@* const> @out@() {
    static constexpr std::array<const @type@*, std::size_t{@n@}> table{
@items@    };
    return table;
}

}  // namespace fsdplan::builtin
]=])
  set(${out} ${files} ${gen} PARENT_SCOPE)
endfunction()

# fsdplan_embed(<out> BASE <folder> GLOB <pattern>)
#
# Sets <out> to a generated source that defines `std::span<const EmbeddedFile> fsdplan::embedded::<out>()`:
# the contents of the files below BASE by their path, sorted. The binary then needs no data folder.
# The assembler copies the bytes, so that size costs no compile time.
function(fsdplan_embed out)
  cmake_parse_arguments(ARG "" "BASE;GLOB" "" ${ARGN})
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${ARG_BASE}/${ARG_GLOB})
  list(SORT files)
  set(blobs "")
  set(items "")
  set(n 0)
  foreach(f IN LISTS files)
    cmake_path(RELATIVE_PATH f BASE_DIRECTORY ${ARG_BASE} OUTPUT_VARIABLE path)
    string(APPEND blobs "asm(\".section .rodata\\nfsdplan_${out}_${n}:\\n.incbin \\\"${f}\\\"\\nfsdplan_${out}_${n}_end:\\n\"\n    \".byte 0\\n.previous\\n\");\n")
    string(APPEND blobs "extern \"C\" const char fsdplan_${out}_${n}[];\nextern \"C\" const char fsdplan_${out}_${n}_end[];\n")
    string(APPEND items "        {\"${path}\", text(fsdplan_${out}_${n}, fsdplan_${out}_${n}_end)},\n")
    math(EXPR n "${n} + 1")
  endforeach()
  set(gen ${PROJECT_BINARY_DIR}/generated/embedded_${out}.cpp)
  file(CONFIGURE OUTPUT ${gen} @ONLY CONTENT [=[#include <array>

#include "base/embedded.hpp"

@blobs@
namespace fsdplan::embedded {
namespace {

std::string_view text(const char* begin, const char* end) {
    return {begin, static_cast<std::size_t>(end - begin)};
}

}  // namespace

std::span<const EmbeddedFile> @out@() {
    static const std::array<EmbeddedFile, std::size_t{@n@}> table{{
@items@    }};
    return table;
}

}  // namespace fsdplan::embedded
]=])
  set_property(SOURCE ${gen} PROPERTY OBJECT_DEPENDS "${files}")
  set(${out} ${gen} PARENT_SCOPE)
endfunction()
