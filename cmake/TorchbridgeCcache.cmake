# Compiles with ccache where it is installed: a second build, also that of another clone, compiles what has changed.
# What makes the objects of two clones the same:
# - paths below the clone are relative in them, to the compiler (CCACHE_BASEDIR, as in its search paths) and in __FILE__
#   and debug information (-ffile-prefix-map); CCACHE_NOHASHDIR, because the folder is not in them then
# - precompiled headers are known by their content (CCACHE_SLOPPINESS, as ccache(1) requires for them), and headers that
#   were installed a moment ago count too
option(TORCHBRIDGE_CCACHE "Compile with ccache, where it is installed" ON)
find_program(TORCHBRIDGE_CCACHE_PROGRAM ccache)
mark_as_advanced(TORCHBRIDGE_CCACHE_PROGRAM)
if(NOT TORCHBRIDGE_CCACHE OR NOT TORCHBRIDGE_CCACHE_PROGRAM OR CMAKE_CXX_COMPILER_LAUNCHER OR CMAKE_TOOLCHAIN_FILE
  OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  return()
endif()
set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
  CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${TORCHBRIDGE_CCACHE_PROGRAM})
add_compile_options(-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=)
