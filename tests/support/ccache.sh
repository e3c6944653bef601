# For tests that compile; to be sourced. BUILD_DIR is the build folder.

# What a test compiled the time before, from the same sources in the same folders, is not compiled again.
use_ccache() {
  command -v ccache >/dev/null || return 0
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_DIR=$BUILD_DIR/ccache
  # With precompiled headers, and with headers that were installed a moment ago (ccache(1), PRECOMPILED HEADERS).
  export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
}
