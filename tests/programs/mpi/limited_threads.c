// Preloaded by MPI's profiling interface: an MPI that offers no more than the thread level of
// TEST_MPI_THREADS (serialized, funneled, single), and that ends the process where it is used
// beyond that level. The library itself is initialised at that level.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

static pthread_t initialiser;
static int level = MPI_THREAD_MULTIPLE;
static atomic_int inside;

static int limit(void) {
  const char* name = getenv("TEST_MPI_THREADS");
  if (name && strcmp(name, "serialized") == 0) return MPI_THREAD_SERIALIZED;
  if (name && strcmp(name, "funneled") == 0) return MPI_THREAD_FUNNELED;
  if (name && strcmp(name, "single") == 0) return MPI_THREAD_SINGLE;
  fprintf(stderr, "TEST_MPI_THREADS: expected serialized, funneled or single\n");
  exit(2);
}

static void enter(const char* call) {
  if (atomic_fetch_add(&inside, 1) > 0 && level < MPI_THREAD_MULTIPLE) {
    fprintf(stderr, "FAILED: %s while another thread is in MPI\n", call);
    abort();
  }
  if (level < MPI_THREAD_SERIALIZED && !pthread_equal(pthread_self(), initialiser)) {
    fprintf(stderr, "FAILED: %s by another thread than that of MPI_Init_thread\n", call);
    abort();
  }
}

static int leave(int code) {
  atomic_fetch_sub(&inside, 1);
  return code;
}

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const int most = limit();
  const int code = PMPI_Init_thread(argc, argv, required < most ? required : most, provided);
  // MPI may provide more than was requested; this one does not.
  if (*provided > most) *provided = most;
  level = *provided;
  initialiser = pthread_self();
  fprintf(stderr, "MPI offers thread level %s\n", getenv("TEST_MPI_THREADS"));
  return code;
}

int MPI_Query_thread(int* provided) {
  *provided = level;
  return MPI_SUCCESS;
}

// CALL(NAME, PARAMETERS, ARGUMENTS): wraps the functions that the backend calls most, and checks
// the calling thread.
#define CALL(name, parameters, arguments) \
  int MPI_##name parameters {             \
    enter("MPI_" #name);                  \
    return leave(PMPI_##name arguments);  \
  }

CALL(Testsome,
     (int count, MPI_Request requests[], int* ended, int indices[], MPI_Status statuses[]),
     (count, requests, ended, indices, statuses))
CALL(Ibarrier, (MPI_Comm comm, MPI_Request* request), (comm, request))
CALL(Ibcast,
     (void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request),
     (buffer, count, type, root, comm, request))
CALL(Iallreduce,
     (const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
      MPI_Request* request),
     (in, out, count, type, op, comm, request))
CALL(Isend,
     (const void* buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
      MPI_Request* request),
     (buffer, count, type, to, tag, comm, request))
CALL(Irecv,
     (void* buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
      MPI_Request* request),
     (buffer, count, type, from, tag, comm, request))
CALL(Comm_dup, (MPI_Comm comm, MPI_Comm* made), (comm, made))
CALL(Comm_create_group, (MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* made),
     (comm, group, tag, made))
CALL(Comm_free, (MPI_Comm * comm), (comm))
CALL(Type_commit, (MPI_Datatype * type), (type))

// MPI_Finalize calls MPI itself, for objects that are released then.
int MPI_Finalize(void) {
  enter("MPI_Finalize");
  leave(MPI_SUCCESS);
  return PMPI_Finalize();
}
