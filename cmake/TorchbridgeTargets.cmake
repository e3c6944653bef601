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
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

function(torchbridge_warnings target)
  target_compile_options(${target} PRIVATE -ffunction-sections -fdata-sections
    -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers)
endfunction()

# For code that leaves computing to libtorch, or that mostly waits: -O2 takes a third more time to compile it, and it
# runs no faster.
function(torchbridge_compile_fast name)
  target_compile_options(${name} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
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

# torchbridge_pages(TARGET NAME [NAME-COMMAND]...): installs the man pages of the program NAME, and of commands that
# have one of their own, and its completion for bash, zsh and fish. The program has the table of its options, so it
# prints them itself. Compiled for another processor it cannot run here: TORCHBRIDGE_HOST_COMMAND is then the same
# program for this one.
function(torchbridge_pages target name)
  set(printer $<TARGET_FILE:${target}>)
  if(TORCHBRIDGE_HOST_COMMAND)
    set(printer ${TORCHBRIDGE_HOST_COMMAND})
  endif()
  set(share ${PROJECT_BINARY_DIR}/share)
  set(man ${share}/man/man1)
  file(MAKE_DIRECTORY ${man} ${share}/bash-completion/completions ${share}/zsh/site-functions
    ${share}/fish/vendor_completions.d)
  add_custom_command(TARGET ${target} POST_BUILD
    COMMAND ${printer} --help=man > ${man}/${name}.1
    COMMAND ${printer} --help=bash > ${share}/bash-completion/completions/${name}
    COMMAND ${printer} --help=zsh > ${share}/zsh/site-functions/_${name}
    COMMAND ${printer} --help=fish > ${share}/fish/vendor_completions.d/${name}.fish VERBATIM)
  install(FILES ${man}/${name}.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  foreach(page IN LISTS ARGN)
    string(REPLACE "${name}-" "" command ${page})
    add_custom_command(TARGET ${target} POST_BUILD COMMAND ${printer} ${command} --help=man > ${man}/${page}.1 VERBATIM)
    install(FILES ${man}/${page}.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  endforeach()
  install(FILES ${share}/bash-completion/completions/${name}
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${share}/zsh/site-functions/_${name} DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/${TORCHBRIDGE_ZSH_FOLDER})
  install(FILES ${share}/fish/vendor_completions.d/${name}.fish
    DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endfunction()
set(TORCHBRIDGE_ZSH_FOLDER site-functions CACHE STRING "Folder of zsh's completions; Debian's: vendor-completions")
set(TORCHBRIDGE_HOST_COMMAND "" CACHE FILEPATH "A torchbridge that runs here, to print the pages of one that does not")

if(TORCHBRIDGE_SANITIZE)
  add_compile_options(-fsanitize=${TORCHBRIDGE_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${TORCHBRIDGE_SANITIZE})
else()
  # Calls of libc whose buffer is too small end the program. Sanitizers see more, and without optimisation libc warns.
  add_compile_options($<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE> $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=2>)
endif()
