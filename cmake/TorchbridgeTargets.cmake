# Rules for all targets: include folders, warnings, sanitizers.

# Sources include a header by its path from the root: "bridge/core/layout.h". Programs include <torchbridge/x.h> of
# include/. Installed, the headers that those include are below torchbridge/detail by the same paths
# (cmake/install_headers.cmake).
get_filename_component(TORCHBRIDGE_ROOT ${CMAKE_CURRENT_LIST_DIR}/.. ABSOLUTE)
set(TORCHBRIDGE_INCLUDES
  $<BUILD_INTERFACE:${TORCHBRIDGE_ROOT}> $<BUILD_INTERFACE:${TORCHBRIDGE_ROOT}/include>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/torchbridge/detail>)

# torchbridge_library(NAME SOURCES...): the static library torchbridge::NAME, installed with the package's component
# TORCHBRIDGE_COMPONENT (cmake/TorchbridgePackage.cmake).
function(torchbridge_library name)
  add_library(torchbridge_${name} STATIC ${ARGN})
  target_include_directories(torchbridge_${name} PUBLIC ${TORCHBRIDGE_INCLUDES})
  target_compile_features(torchbridge_${name} PUBLIC cxx_std_20)
  torchbridge_warnings(torchbridge_${name})
  torchbridge_export(${name})
  set_property(GLOBAL APPEND PROPERTY TORCHBRIDGE_STATIC_LIBRARIES torchbridge_${name})
endfunction()

# torchbridge_export(NAME): makes the target torchbridge_NAME available as torchbridge::NAME, in the tree and installed.
function(torchbridge_export name)
  add_library(torchbridge::${name} ALIAS torchbridge_${name})
  set_target_properties(torchbridge_${name} PROPERTIES EXPORT_NAME ${name})
  install(TARGETS torchbridge_${name} EXPORT torchbridge-${TORCHBRIDGE_COMPONENT}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

function(torchbridge_warnings target)
  target_compile_options(${target} PRIVATE -ffunction-sections -fdata-sections
    -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers)
endfunction()

# For libraries that are linked into the SPANK plugin, which every srun loads: optimised for size, and across libraries
# when the plugin is linked, which makes it 12% smaller. Other programs link the same objects by -fno-lto: without it
# gcc would optimise them again for each program.
function(torchbridge_small target)
  target_compile_options(${target} PRIVATE -Os)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT TORCHBRIDGE_SANITIZE)
    target_compile_options(${target} PRIVATE -flto=auto -ffat-lto-objects)
    # With several partitions gcc calls make, and warns where it is missing.
    target_link_options(${target} PRIVATE -flto-partition=one)
    target_link_options(${target} INTERFACE
      $<BUILD_INTERFACE:$<$<NOT:$<BOOL:$<TARGET_PROPERTY:TORCHBRIDGE_LTO>>>:-fno-lto>>)
  endif()
endfunction()

if(TORCHBRIDGE_SANITIZE)
  add_compile_options(-fsanitize=${TORCHBRIDGE_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${TORCHBRIDGE_SANITIZE})
endif()
