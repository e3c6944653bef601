# Compiles for an older glibc than this machine's, and for other processors, by the clang, libc++ and stubs of glibc
# that `ziglang` of PyPI brings. scripts/wheel uses it; the environment variables that it sets:
#   TORCHBRIDGE_ZIG      the program zig
#   TORCHBRIDGE_TARGET   x86_64-linux-gnu.2.28: processor and oldest glibc
#   TORCHBRIDGE_HEADERS  a root with the headers of CLI11, nlohmann_json and libcurl, and nothing of this machine's libc
set(zig $ENV{TORCHBRIDGE_ZIG})
set(target $ENV{TORCHBRIDGE_TARGET})
string(REGEX MATCH "^[^-]+" processor "${target}")
string(REGEX MATCH "[0-9]+[.][0-9]+$" TORCHBRIDGE_GLIBC "${target}")  # the oldest that it runs on

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${processor})
set(CMAKE_C_COMPILER ${zig} cc -target ${target})
set(CMAKE_CXX_COMPILER ${zig} c++ -target ${target})
foreach(language C CXX)
  set(CMAKE_${language}_ARCHIVE_CREATE "\"${zig}\" ar qc <TARGET> <LINK_FLAGS> <OBJECTS>")
  set(CMAKE_${language}_ARCHIVE_FINISH "\"${zig}\" ranlib <TARGET>")
endforeach()
# Without debugger's symbols, which no strip of this machine can remove for another processor.
set(CMAKE_EXE_LINKER_FLAGS_INIT -s)
# zig links no crtbegin, so that nothing would run the destructors of a library that is unloaded.
set(CMAKE_MODULE_LINKER_FLAGS_INIT "-s -Wl,-z,nodelete")

set(CMAKE_FIND_ROOT_PATH $ENV{TORCHBRIDGE_HEADERS})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
