# find_package(dpx) and target_link_libraries(yours dpx::dpx): libdpx beside this file's folder, dpx.h of the prefix around it.
get_filename_component(_dpx_lib "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
find_path(dpx_INCLUDE_DIR dpx.h HINTS "${_dpx_lib}/../include" "${_dpx_lib}/../../include" NO_DEFAULT_PATH)
if(NOT dpx_INCLUDE_DIR OR NOT EXISTS "${_dpx_lib}/libdpx.so.0")
  set(dpx_FOUND FALSE)
  set(dpx_NOT_FOUND_MESSAGE "no libdpx.so.0 in ${_dpx_lib}, or no dpx.h above it")
  return()
endif()
if(NOT TARGET dpx::dpx)
  add_library(dpx::dpx SHARED IMPORTED)
  set_target_properties(dpx::dpx PROPERTIES
    IMPORTED_LOCATION "${_dpx_lib}/libdpx.so.0"
    IMPORTED_SONAME "libdpx.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${dpx_INCLUDE_DIR}")
endif()
set(dpx_FOUND TRUE)
