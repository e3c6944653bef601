# Programs on torchbridge::train, in the tree and in projects that find_package(torchbridge) found.

# Headers that take a compiler long: of tensors, and of process groups and modules too.
set(TORCHBRIDGE_TENSORS_HEADERS <ATen/core/Tensor.h> <algorithm> <chrono> <functional> <map> <string> <vector>)
set(TORCHBRIDGE_DISTRIBUTED_HEADERS ${TORCHBRIDGE_TENSORS_HEADERS}
  <torch/csrc/distributed/c10d/ProcessGroup.hpp> <torch/nn/modules/linear.h>)

# torchbridge_torch_program(NAME SOURCES...): a program on torchbridge::train that finds its libtorch wherever it lies, installed too.
# libtorch's headers are read once: in the tree for all programs, else for each program of more than one source.
function(torchbridge_torch_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE torchbridge::train)
  torchbridge_find_libtorch_at_run_time(${name})
  if(COMMAND torchbridge_warnings)
    torchbridge_warnings(${name})
  endif()
  list(LENGTH ARGN sources)
  if(TARGET torchbridge_train_rendezvous)
    # Compiled as the library is (-fPIC, not -fPIE), or its precompiled headers would not do.
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${name} PRIVATE -fPIC)
    target_precompile_headers(${name} REUSE_FROM torchbridge_train_rendezvous)
  elseif(sources GREATER 1)
    target_precompile_headers(${name} PRIVATE ${TORCHBRIDGE_DISTRIBUTED_HEADERS})
  endif()
endfunction()

# Of a target that links libtorch: it finds it when it is installed as well. Others than libtorch are found by INSTALL_RPATH_USE_LINK_PATH,
# which leaves out what is below the source folder, as a .venv often is.
function(torchbridge_find_libtorch_at_run_time target)
  get_target_property(libtorch Libtorch::cpu IMPORTED_LOCATION)
  get_filename_component(folder ${libtorch} DIRECTORY)
  set_property(TARGET ${target} APPEND PROPERTY INSTALL_RPATH ${folder})
  set_property(TARGET ${target} PROPERTY INSTALL_RPATH_USE_LINK_PATH ON)
endfunction()
