// resolve_launch over a communicator of the program's own MPI.
#pragma once

#include "bridge/mpi/mpi_launch.h"
