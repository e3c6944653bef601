# What cmake --install writes in addition to the libraries: headers, the package torchbridge for find_package, programs,
# data and the find modules.
include(CMakePackageConfigHelpers)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/torchbridge)
set(data ${CMAKE_INSTALL_DATADIR}/torchbridge)

# Each component has its own export set, so that a program that uses only the bridge needs no libtorch.
set(TORCHBRIDGE_COMPONENTS bridge)
foreach(component train mpi_backend)
  if(TARGET torchbridge::${component})
    list(APPEND TORCHBRIDGE_COMPONENTS ${component})
  endif()
endforeach()
foreach(component IN LISTS TORCHBRIDGE_COMPONENTS)
  install(EXPORT torchbridge-${component} NAMESPACE torchbridge:: DESTINATION ${package})
endforeach()

# The headers that programs include. Those that they include in turn are installed below detail/.
set(public_headers env_map launch mpi_launch record)
if(TARGET torchbridge::agent)
  list(APPEND public_headers spawn)
endif()
if(TARGET torchbridge::train)
  list(APPEND public_headers backend checkpoint data ddp errors formats group_options lr_schedule model_tensors
    optimizer option_table options part preemption process_group sampler settings skipped_samples sync_batch_norm
    task train_state training training_step)
endif()
if(TARGET torchbridge::mpi_backend)
  list(APPEND public_headers mpi_backend)
endif()
install(CODE "set(public_headers ${public_headers})\nset(source_dir \"${PROJECT_SOURCE_DIR}\")
  set(destination \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}/torchbridge\")")
install(SCRIPT cmake/install_headers.cmake)

# Each minor version of libtorch has another c10d.
if(Libtorch_VERSION MATCHES "^[0-9]+\\.[0-9]+")
  set(TORCHBRIDGE_LIBTORCH_VERSION ${CMAKE_MATCH_0})
endif()
configure_package_config_file(cmake/torchbridgeConfig.cmake.in ${PROJECT_BINARY_DIR}/package/torchbridgeConfig.cmake
  INSTALL_DESTINATION ${package} PATH_VARS data)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/torchbridgeConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(DIRECTORY ${PROJECT_BINARY_DIR}/package/ DESTINATION ${package})
install(FILES cmake/FindLibtorch.cmake cmake/TorchbridgeProgram.cmake DESTINATION ${package})

# Removes gcc's LTO sections, which only the same version of gcc reads: with another one programs would not link.
# --strip does not handle static libraries, so their debug symbols are removed here.
install(CODE "set(strip)\nif(CMAKE_INSTALL_DO_STRIP)\n  set(strip -g)\nendif()")
get_property(libraries GLOBAL PROPERTY TORCHBRIDGE_STATIC_LIBRARIES)
foreach(library IN LISTS libraries)
  install(CODE "execute_process(COMMAND ${CMAKE_OBJCOPY} \${strip} -R .gnu.lto_* -R .gnu.debuglto_*
    \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/$<TARGET_FILE_NAME:${library}>\"
    COMMAND_ERROR_IS_FATAL ANY)")
endforeach()

# What is installed has its run path from the beginning: else CMake ends that of the build with colons, to have room for
# the other one, and the loader takes each for the current folder.
foreach(target torchbridge_cli trainer torchbridge_mpi_plugin torchbridge_nccl_plugin)
  if(TARGET ${target})
    set_property(TARGET ${target} PROPERTY BUILD_WITH_INSTALL_RPATH ON)
  endif()
endforeach()

# Where the program looks for its data (trainer_template/tasks).
install(DIRECTORY data/ DESTINATION ${data})
if(TARGET trainer)
  set_property(TARGET trainer APPEND PROPERTY INSTALL_RPATH $ORIGIN/../${CMAKE_INSTALL_LIBDIR})
  install(TARGETS trainer RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  # A trainer to start from, without the source tree.
  install(PROGRAMS scripts/new_trainer RENAME torchbridge-new-trainer DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(DIRECTORY trainer_template/ DESTINATION ${data}/trainer_template FILES_MATCHING
    PATTERN CMakeLists.txt PATTERN *.md PATTERN *.cpp PATTERN *.h PATTERN *.sh PATTERN *.sbatch
    PATTERN runtime EXCLUDE PATTERN tasks EXCLUDE PATTERN ckpt EXCLUDE)
endif()
