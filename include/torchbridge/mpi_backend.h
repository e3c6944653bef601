// A c10d backend over MPI, linked instead of opened.
#pragma once

#include "backends/mpi/mpi_backend.h"
