# For tests that compile; to be sourced. BUILD_DIR is the build folder.

# With ccache, where it is installed: compiles once what does not change between two runs of the test. The test must
# compile in the same folder each time.
use_ccache() {
  command -v ccache >/dev/null || return 0
  # By headers alone (CCACHE_DEPEND): see cmake/compile_with_ccache.
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_DIR=$BUILD_DIR/ccache CCACHE_DEPEND=1
  # With precompiled headers, and with headers that were installed a moment ago (ccache(1), PRECOMPILED HEADERS).
  export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
}
