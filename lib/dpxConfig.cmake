# find_package(dpx) and target_link_libraries(yours dpx::dpx): libdpx and dpx.h of the PREFIX that this file is in.
get_filename_component(_dpx_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET dpx::dpx)
  add_library(dpx::dpx SHARED IMPORTED)
  set_target_properties(dpx::dpx PROPERTIES
    IMPORTED_LOCATION "${_dpx_prefix}/lib/libdpx.so.0"
    IMPORTED_SONAME "libdpx.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${_dpx_prefix}/include")
endif()
set(dpx_FOUND TRUE)
