// A c10d backend over MPI, for programs that link it instead of loading it at run time.
#pragma once

#include "backends/mpi/mpi_backend.h"
