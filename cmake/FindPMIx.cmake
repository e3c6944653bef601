# Finds libpmix, which programs open when they need it: PMIx_INCLUDE_DIR, PMIx_LIBRARY.
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(PC_PMIX QUIET pmix)
endif()
find_path(PMIx_INCLUDE_DIR pmix.h HINTS ${PC_PMIX_INCLUDE_DIRS} PATH_SUFFIXES pmix pmix2/include
          PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pmix2/include)
find_library(PMIx_LIBRARY pmix HINTS ${PC_PMIX_LIBRARY_DIRS}
             PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pmix2/lib)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(PMIx REQUIRED_VARS PMIx_LIBRARY PMIx_INCLUDE_DIR
  REASON_FAILURE_MESSAGE
  "install the package: Debian libpmix-dev (scripts/setup does), EL pmix-devel, or configure with \
-DTORCHBRIDGE_PMIX=OFF")
