# cpack -G DEB|RPM|TGZ in the build folder: one package of what this configuration installs. scripts/packages builds
# all.
#   preset plugin   torchbridge-plugin-slurm22.05, named after the release of Slurm that loads it
#   preset command  torchbridge
#   others          torchbridge-dev: the development files, and what they were built with
set(CPACK_PACKAGE_VENDOR torchbridge)
set(CPACK_PACKAGE_CONTACT "the maintainers of torchbridge")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_RPM_PACKAGE_LICENSE Apache-2.0)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_RPM_SPEC_MORE_DEFINE "%define _build_id_links none")
if(TORCHBRIDGE_LIBRARY)
  set(CPACK_PACKAGE_NAME torchbridge-dev)
  set(CPACK_RPM_PACKAGE_NAME torchbridge-devel)
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "torchbridge: libraries and headers for programs, with the command")
  set(CPACK_DEBIAN_PACKAGE_CONFLICTS torchbridge)
  set(CPACK_DEBIAN_PACKAGE_REPLACES torchbridge)
  set(CPACK_DEBIAN_PACKAGE_PROVIDES torchbridge)
  set(CPACK_RPM_PACKAGE_CONFLICTS torchbridge)
  # libtorch is no package; it is the one of a Python environment.
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS OFF)
  set(CPACK_RPM_PACKAGE_AUTOREQ OFF)
elseif(TORCHBRIDGE_COMMAND)
  set(CPACK_PACKAGE_NAME torchbridge)
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "starts distributed PyTorch programs under Slurm and MPI, or alone")
  if(TORCHBRIDGE_GLIBC)  # dpkg-shlibdeps knows this machine's libc alone: for libpthread.so.0 it asks for 2.34
    set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS OFF)
    set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= ${TORCHBRIDGE_GLIBC})")
  endif()
else()
  set(CPACK_PACKAGE_NAME torchbridge-plugin-slurm${SLURM_RELEASE})
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "option --torch-env for srun, sbatch and salloc of Slurm ${SLURM_RELEASE}")
  set(CPACK_PACKAGING_INSTALL_PREFIX /)
  # One plugin a machine: dpkg installs no second package of the same files. No Conflicts or Breaks: apt would remove
  # the old one before preinst may refuse the new one.
  set(CPACK_DEBIAN_PACKAGE_PROVIDES torchbridge-plugin)
  set(CPACK_RPM_PACKAGE_PROVIDES torchbridge-plugin)
  set(CPACK_RPM_PACKAGE_CONFLICTS torchbridge-plugin)
  set(conf ${SLURM_CONF_DIR}/plugstack.conf.d/torch_env.conf)
  set(scripts ${PROJECT_BINARY_DIR}/packaging)
  foreach(script preinst postinst postrm)
    configure_file(packaging/plugin_${script}.in ${scripts}/${script} @ONLY
      FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  endforeach()
  configure_file(LICENSE ${scripts}/doc/copyright COPYONLY)
  set(CPACK_INSTALLED_DIRECTORIES ${scripts}/doc /usr/share/doc/${CPACK_PACKAGE_NAME})
  file(CONFIGURE OUTPUT ${scripts}/conffiles CONTENT "${conf}\n")
  set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
    ${scripts}/preinst ${scripts}/postinst ${scripts}/postrm ${scripts}/conffiles)
  set(CPACK_RPM_PRE_INSTALL_SCRIPT_FILE ${scripts}/preinst)
  set(CPACK_RPM_POST_INSTALL_SCRIPT_FILE ${scripts}/postinst)
  set(CPACK_RPM_USER_FILELIST "%config(noreplace) ${conf}")
  # Folders of Slurm's own packages.
  set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION /etc ${SLURM_CONF_DIR} ${SLURM_CONF_DIR}/plugstack.conf.d
    ${SLURM_PLUGIN_DIR})
endif()
if((TORCHBRIDGE_COMMAND OR TORCHBRIDGE_LIBRARY) AND NOT SKBUILD)  # a wheel has its own
  install(FILES LICENSE RENAME copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${CPACK_PACKAGE_NAME})
endif()
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_PACKAGE_FILE_NAME ${CPACK_PACKAGE_NAME}-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
include(CPack)
