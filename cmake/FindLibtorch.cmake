# Finds libtorch in a Python wheel or an unpacked zip, without torch's own CMake files, which require a CUDA toolkit.
#
# Looks below TORCHBRIDGE_TORCH_ROOT (cache or environment variable): a torch or libtorch folder, a site-packages folder
# or a virtual environment. The default is TORCHBRIDGE_TORCH_DEFAULT: in the tree the .venv that scripts/setup makes,
# for an installed torchbridge the libtorch that it was built with. CPU-only builds are accepted too.
#
# Defines Libtorch_FOUND, Libtorch_VERSION, Libtorch_ROOT_DIR and the target
#   Libtorch::cpu   tensors, autograd, nn and c10d with gloo: torch_cpu and c10. Not torch_cuda, which costs a process
#                   350 MB and 0.1 s to load, even without a GPU.
#   Libtorch::cuda  the same with torch_cuda and the headers of CUDA and NCCL. Exists where libtorch is a CUDA build and
#                   the headers are found. For libraries that are opened when a GPU is selected. The headers are those
#                   of the wheels next to torch. An installed CUDA toolkit may have another version: its headers are
#                   used only where TORCHBRIDGE_CUDA_INCLUDE or TORCHBRIDGE_NCCL_INCLUDE names them.
# Libtorch_CUDA_INCLUDE_DIRS contains the folders of these headers, Libtorch_CUDA_MISSING the headers that a CUDA build
# of libtorch lacks for the target.

set(TORCHBRIDGE_TORCH_ROOT "" CACHE PATH
    "Folder of libtorch: torch, libtorch, site-packages or a virtual environment (default: the environment \
variable of this name, else ${TORCHBRIDGE_TORCH_DEFAULT})")

# The environment variable is read at each run: a change would have no effect if the cache kept it.
set(_libtorch_bases ${TORCHBRIDGE_TORCH_ROOT})
if(NOT _libtorch_bases AND NOT "$ENV{TORCHBRIDGE_TORCH_ROOT}" STREQUAL "")
  get_filename_component(_libtorch_bases "$ENV{TORCHBRIDGE_TORCH_ROOT}" ABSOLUTE BASE_DIR "$ENV{PWD}")
endif()
if(NOT _libtorch_bases)
  set(_libtorch_bases ${TORCHBRIDGE_TORCH_DEFAULT})
endif()

set(_libtorch_tried)
foreach(_base IN LISTS _libtorch_bases)
  file(GLOB _in_environment ${_base}/lib/python3*/site-packages/torch)
  list(APPEND _libtorch_tried ${_base} ${_base}/torch ${_base}/libtorch ${_in_environment})
endforeach()

# Not cached, so that a changed TORCHBRIDGE_TORCH_ROOT takes effect when cmake runs again.
unset(Libtorch_ROOT_DIR)
foreach(_folder IN LISTS _libtorch_tried)
  if(EXISTS ${_folder}/lib/libtorch_cpu.so AND EXISTS ${_folder}/include/ATen/ATen.h)
    set(Libtorch_ROOT_DIR ${_folder})
    break()
  endif()
endforeach()

unset(Libtorch_VERSION)
if(Libtorch_ROOT_DIR)
  foreach(_header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(NOT Libtorch_VERSION AND EXISTS ${Libtorch_ROOT_DIR}/include/${_header})
      file(READ ${Libtorch_ROOT_DIR}/include/${_header} _text)
      foreach(_part MAJOR MINOR PATCH)
        if(_text MATCHES "#define TORCH_VERSION_${_part} ([0-9]+)")
          list(APPEND _numbers ${CMAKE_MATCH_1})
        endif()
      endforeach()
      list(JOIN _numbers "." Libtorch_VERSION)
      unset(_numbers)
    endif()
  endforeach()
endif()

list(JOIN _libtorch_tried "\n    " _libtorch_tried_text)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libtorch
  REQUIRED_VARS Libtorch_ROOT_DIR
  VERSION_VAR Libtorch_VERSION
  REASON_FAILURE_MESSAGE
  "lib/libtorch_cpu.so and include/ATen/ATen.h are in none of\n    ${_libtorch_tried_text}\n\
  Run scripts/setup, which makes .venv, or set TORCHBRIDGE_TORCH_ROOT. \
-DTORCHBRIDGE_TORCH=OFF builds without the trainer.\n")

if(Libtorch_FOUND AND NOT TARGET Libtorch::cpu)
  add_library(Libtorch::c10 SHARED IMPORTED GLOBAL)
  set_target_properties(Libtorch::c10 PROPERTIES IMPORTED_LOCATION ${Libtorch_ROOT_DIR}/lib/libc10.so)

  add_library(Libtorch::cpu SHARED IMPORTED GLOBAL)
  set_target_properties(Libtorch::cpu PROPERTIES
    IMPORTED_LOCATION ${Libtorch_ROOT_DIR}/lib/libtorch_cpu.so
    # The include folders of an imported target are SYSTEM for the targets that link it.
    INTERFACE_INCLUDE_DIRECTORIES
      "${Libtorch_ROOT_DIR}/include;${Libtorch_ROOT_DIR}/include/torch/csrc/api/include"
    INTERFACE_COMPILE_DEFINITIONS USE_DISTRIBUTED
    # torch_cpu finds its own libraries (gomp, CUDA's runtime in a CUDA build) by its RPATH: the linker needs no paths.
    INTERFACE_LINK_OPTIONS "-Wl,--unresolved-symbols=ignore-in-shared-libs"
    INTERFACE_LINK_LIBRARIES Libtorch::c10)
endif()

if(Libtorch_FOUND AND NOT TARGET Libtorch::cuda AND EXISTS ${Libtorch_ROOT_DIR}/lib/libtorch_cuda.so)
  set(TORCHBRIDGE_CUDA_INCLUDE "" CACHE PATH "Folder of CUDA's headers, where libtorch does not bring them")
  set(TORCHBRIDGE_NCCL_INCLUDE "" CACHE PATH "Folder of nccl.h, where libtorch does not bring it")
  # The wheels of CUDA 13 have one folder for all headers, those of CUDA 12 one each. In a toolkit cccl/ is separate.
  file(GLOB _cuda_folders ${Libtorch_ROOT_DIR}/../nvidia/cu*/include)
  file(GLOB _nccl_folders ${Libtorch_ROOT_DIR}/../nvidia/nccl/include)
  if(TORCHBRIDGE_CUDA_INCLUDE)
    set(_cuda_folders ${TORCHBRIDGE_CUDA_INCLUDE} ${TORCHBRIDGE_CUDA_INCLUDE}/cccl)
  endif()
  if(TORCHBRIDGE_NCCL_INCLUDE)
    set(_nccl_folders ${TORCHBRIDGE_NCCL_INCLUDE})
  endif()

  unset(Libtorch_CUDA_INCLUDE_DIRS)
  unset(Libtorch_CUDA_MISSING)
  foreach(_header cuda_runtime_api.h crt/host_config.h nv/target nccl.h)
    set(_folders ${_cuda_folders})
    if(_header STREQUAL "nccl.h")
      set(_folders ${_nccl_folders})
    endif()
    find_path(_folder ${_header} PATHS ${_folders} NO_DEFAULT_PATH NO_CACHE)
    if(_folder)
      list(APPEND Libtorch_CUDA_INCLUDE_DIRS ${_folder})
    else()
      list(APPEND Libtorch_CUDA_MISSING ${_header})
    endif()
    unset(_folder)
  endforeach()
  list(REMOVE_DUPLICATES Libtorch_CUDA_INCLUDE_DIRS)

  if(NOT Libtorch_CUDA_MISSING)
    add_library(Libtorch::c10_cuda SHARED IMPORTED GLOBAL)
    set_target_properties(Libtorch::c10_cuda PROPERTIES IMPORTED_LOCATION ${Libtorch_ROOT_DIR}/lib/libc10_cuda.so)
    add_library(Libtorch::cuda SHARED IMPORTED GLOBAL)
    set_target_properties(Libtorch::cuda PROPERTIES
      IMPORTED_LOCATION ${Libtorch_ROOT_DIR}/lib/libtorch_cuda.so
      INTERFACE_INCLUDE_DIRECTORIES "${Libtorch_CUDA_INCLUDE_DIRS}"
      INTERFACE_LINK_LIBRARIES "Libtorch::c10_cuda;Libtorch::cpu")
  endif()
endif()
