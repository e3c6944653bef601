# Programs that link torchbridge::train, in the tree and in projects that use find_package(torchbridge).

# Headers that are slow to compile, as precompiled headers: of tensors, and of process groups and modules too.
set(TORCHBRIDGE_TENSORS_HEADERS <ATen/core/Tensor.h> <algorithm> <chrono> <functional> <map> <string> <vector>)
set(TORCHBRIDGE_DISTRIBUTED_HEADERS ${TORCHBRIDGE_TENSORS_HEADERS}
  <torch/csrc/distributed/c10d/ProcessGroup.hpp> <torch/nn/modules/linear.h>)

# A program of the tree with the precompiled headers of the library, which require its flags: -fPIC instead of -fPIE.
function(torchbridge_precompile_program name)
  torchbridge_compile_fast(${name})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -fPIC)
  target_precompile_headers(${name} REUSE_FROM torchbridge_train_rendezvous)
endfunction()

# torchbridge_torch_program(NAME SOURCES...): a program that links torchbridge::train and finds libtorch at run time,
# also when it is installed; with another libtorch it ends with a line that names both versions. libtorch's headers are
# precompiled: in the tree once for all programs, elsewhere for each program of more than one source.
function(torchbridge_torch_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE torchbridge::train)
  if(TARGET torchbridge::libtorch_check)
    # The program uses nothing of it: --as-needed, which is the default of some linkers, would leave it out.
    target_link_libraries(${name} PRIVATE -Wl,--push-state,--no-as-needed torchbridge::libtorch_check
      -Wl,--pop-state)
  endif()
  torchbridge_find_libtorch_at_run_time(${name})
  if(COMMAND torchbridge_warnings)
    torchbridge_warnings(${name})
  endif()
  list(LENGTH ARGN sources)
  if(TARGET torchbridge_train_rendezvous)
    torchbridge_precompile_program(${name})
  elseif(sources GREATER 1)
    target_precompile_headers(${name} PRIVATE ${TORCHBRIDGE_TENSORS_HEADERS} <torch/nn/modules/linear.h>)
  endif()
endfunction()

# Lets an installed target find libtorch. INSTALL_RPATH_USE_LINK_PATH is for the other libraries: it leaves out folders
# below the source folder, where a .venv often is.
function(torchbridge_find_libtorch_at_run_time target)
  get_target_property(libtorch Libtorch::cpu IMPORTED_LOCATION)
  get_filename_component(folder ${libtorch} DIRECTORY)
  set_property(TARGET ${target} APPEND PROPERTY INSTALL_RPATH ${folder})
  set_property(TARGET ${target} PROPERTY INSTALL_RPATH_USE_LINK_PATH ON)
endfunction()
