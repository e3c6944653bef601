# Compiles with ccache where it is installed: a second build, also that of another clone, compiles what has changed.
# What makes the objects of two clones the same:
# - paths below the clone are relative in them, to the compiler (CCACHE_BASEDIR, as in its search paths) and in __FILE__
#   and debug information (-ffile-prefix-map); CCACHE_NOHASHDIR, because the folder is not in them then
# - precompiled headers are known by their content (CCACHE_SLOPPINESS, as ccache(1) requires for them), and headers that
#   were installed a moment ago count too
# compile_with_ccache sets these variables.
option(TORCHBRIDGE_CCACHE "Compile with ccache, where it is installed" ON)
find_program(TORCHBRIDGE_CCACHE_PROGRAM ccache)
mark_as_advanced(TORCHBRIDGE_CCACHE_PROGRAM)
if(NOT TORCHBRIDGE_CCACHE OR NOT TORCHBRIDGE_CCACHE_PROGRAM OR CMAKE_CXX_COMPILER_LAUNCHER OR CMAKE_TOOLCHAIN_FILE
  OR NOT CMAKE_CXX_COMPILER_ID MATCHES "^(GNU|Clang)$")
  return()
endif()
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH clone)
set(launcher ${CMAKE_CURRENT_LIST_DIR}/compile_with_ccache ${clone} ${TORCHBRIDGE_CCACHE_PROGRAM})
# As where its folder cannot be written: then it compiles nothing at all.
file(WRITE ${CMAKE_BINARY_DIR}/CMakeFiles/ccache_probe.cpp "")
execute_process(COMMAND ${launcher} ${CMAKE_CXX_COMPILER} -c ${CMAKE_BINARY_DIR}/CMakeFiles/ccache_probe.cpp
                        -o ${CMAKE_BINARY_DIR}/CMakeFiles/ccache_probe.o
                RESULT_VARIABLE probed ERROR_VARIABLE error)
if(NOT probed EQUAL 0)
  message(STATUS "ccache is not used: ${error}")
  return()
endif()
set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
add_compile_options(-ffile-prefix-map=${clone}/= "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")
