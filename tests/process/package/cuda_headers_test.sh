#!/usr/bin/env bash
# CUDA's and NCCL's headers are those beside libtorch, never those of an installed toolkit, unless it is named:
# cuda_headers_test.sh SOURCE_DIR BUILD_DIR LIBTORCH_DIR
set -euo pipefail
source_dir=$1 build_dir=$2 libtorch=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
site=$(dirname "$libtorch")
[[ -e $libtorch/lib/libtorch_cuda.so && -d $site/nvidia/nccl ]] || {
  echo "SKIPPED: $libtorch is no wheel for CUDA"
  exit 77
}
! grep -qE '^TORCHBRIDGE_(CUDA|NCCL)_INCLUDE:[^=]*=.' "$build_dir/CMakeCache.txt" || {
  echo "SKIPPED: this build names a CUDA toolkit"
  exit 77
}

# A site-packages with links to all that the real one has, but for the header folders crt and nv, as torch's own wheels
# leave it.
mkdir -p "$work/site/torch" "$work/site/nvidia/cu13/include"
ln -s "$libtorch"/{lib,include} "$work/site/torch/"
ln -s "$site/nvidia/nccl" "$work/site/nvidia/"
ln -s "$site"/nvidia/cu13/include/* "$work/site/nvidia/cu13/include/"
rm "$work"/site/nvidia/cu13/include/{crt,nv,cccl}

# A toolkit with nv/ in cccl/, as CUDA 13 has it.
mkdir -p "$work/toolkit/include/cccl"
ln -s "$site"/nvidia/cu13/include/{cuda_runtime_api.h,crt} "$site/nvidia/nccl/include/nccl.h" "$work/toolkit/include/"
ln -s "$site/nvidia/cu13/include/nv" "$work/toolkit/include/cccl/"

cat >"$work/CMakeLists.txt" <<PROJECT
cmake_minimum_required(VERSION 3.25)
project(headers LANGUAGES CXX)
list(APPEND CMAKE_MODULE_PATH $source_dir/cmake)
find_package(Libtorch REQUIRED)
message(STATUS "folders: \${Libtorch_CUDA_INCLUDE_DIRS}")
if(NOT TARGET Libtorch::cuda)
  add_subdirectory($source_dir/backends/nccl nccl)
endif()
PROJECT

# configured PATTERN ARGUMENTS...: CMake's words, without line breaks, match.
configured() {
  local pattern=$1 words
  shift
  rm -rf "$work/build"
  words=$(cmake -S "$work" -B "$work/build" -G Ninja -DTORCHBRIDGE_TORCH_ROOT="$work/site" "$@" 2>&1 |
    tr -s ' \n' ' ') || fail "$words"
  [[ $words =~ $pattern ]] || fail "no '$pattern' in: $words"
}
missing='the backend "nccl" is not built: [^ ]*/site/torch is for CUDA,'
missing+=' but the headers crt/host_config.h, nv/target are not beside it'
configured "$missing"
configured "$missing" -DCMAKE_PREFIX_PATH="$work/toolkit" -DCMAKE_INCLUDE_PATH="$work/toolkit/include"
CUDA_HOME=$work/toolkit CUDA_PATH=$work/toolkit CPATH=$work/toolkit/include configured "$missing"
configured "folders: $work/toolkit/include/;$work/toolkit/include/cccl/;$work/site/nvidia/nccl/include/ " \
  -DTORCHBRIDGE_CUDA_INCLUDE="$work/toolkit/include"
configured "folders: [^ ]*/nvidia/cu13/include/;$work/toolkit/include/ " \
  -DTORCHBRIDGE_CUDA_INCLUDE="$site/nvidia/cu13/include" -DTORCHBRIDGE_NCCL_INCLUDE="$work/toolkit/include"

# The build that is tested: a toolkit in CPATH is not read.
[[ -e $build_dir/lib/libtorchbridge_nccl.so ]] || fail "the backend \"nccl\" was not built"
mkdir "$work/decoy"
echo '#error "the header of another toolkit"' |
  tee "$work/decoy"/{cuda.h,cuda_runtime.h,cuda_runtime_api.h,nccl.h} >/dev/null
object=backends/nccl/CMakeFiles/torchbridge_nccl_plugin.dir/nccl_backend.cpp.o
command=$(ninja -C "$build_dir" -t commands "$object" | grep " -o $object ")
(cd "$build_dir" && CPATH=$work/decoy sh -c "${command/ -MD * -c / -M }") >"$work/deps" 2>"$work/log" || {
  cat "$work/log"
  fail "a header of CPATH takes the place of libtorch's"
}

# No header that it was compiled from lies in a toolkit: in a folder with cuda_runtime_api.h or nccl.h that is not
# beside libtorch.
ninja -C "$build_dir" -t deps | sed -n 's/^    //p' | sort -u | (cd "$build_dir" && python3 -c '
import functools, os, sys
site = os.path.realpath(sys.argv[1])

@functools.cache
def in_toolkit(folder):
    if folder in ("/", "/usr/include", site):  # where Debian keeps a toolkit among all others, names tell: below
        return False
    here = [f"{folder}/{name}" for name in ("cuda_runtime_api.h", "nccl.h")]
    return (any(os.path.isfile(path) and not os.path.islink(path) for path in here) or
            in_toolkit(os.path.dirname(folder)))

debian = tuple("/usr/include/" + name for name in (
    "crt/", "nv/", "cuda", "nccl", "cublas", "cusparse", "cusolver", "curand", "cufft", "cudnn", "driver_types",
    "thrust/", "cub/", "library_types"))
headers = [os.path.realpath(line.rstrip("\n")) for line in sys.stdin]
toolkit = [header for header in headers if not header.startswith(site + "/") and
           (in_toolkit(os.path.dirname(header)) or header.startswith(debian))]
print(f"{len(headers)} headers, {len(toolkit)} of a CUDA toolkit", *toolkit[:5], sep="\n  ")
sys.exit(len(headers) < 1000 or len(toolkit) > 0)' "$site") ||
  fail "the build reads an installed CUDA toolkit, which another machine lacks"
