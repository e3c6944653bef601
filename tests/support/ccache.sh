# For tests that compile; to be sourced. SOURCE_DIR is the source tree, BUILD_DIR the build folder.

# With ccache, where the build uses it: compiles once, also for other clones, what does not change between two runs of
# the test. The test must compile in the same folder of the build each time. To be called before HOME is another.
use_ccache() {
  grep -q compile_with_ccache "$BUILD_DIR/build.ninja" || return 0
  export CMAKE_CXX_COMPILER_LAUNCHER="env;HOME=$HOME;$SOURCE_DIR/cmake/compile_with_ccache;$SOURCE_DIR;ccache"
}
