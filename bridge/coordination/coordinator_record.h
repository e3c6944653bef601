// Where the agents of a run find their coordinator when no endpoint names it: a record that one
// agent at a time holds.
#pragma once

#include <memory>
#include <string>

#include "bridge/base/result.h"
#include "bridge/core/endpoint.h"

namespace torchbridge {

// Calls wait for a file system or a server, up to the record's timeout. One thread.
class CoordinatorRecord {
 public:
  virtual ~CoordinatorRecord() = default;

  struct Holder {
    bool is_self = false;
    Endpoint coordinator;  // of another agent; port 0: one that has not written it yet
  };
  // Takes the record with `own` as its content where no agent holds it. What is taken is held until
  // release(), the end of this process, or a loss that descriptor() shows.
  virtual Result<Holder> take_or_read(const Endpoint& own) = 0;
  // Readable, or at its end, when this process no longer holds the record although it was not
  // released; -1: that cannot be.
  virtual int descriptor() const = 0;
  // Called at least each third of the lease while it is held: else it is lost, as that of a process
  // that is stopped.
  virtual void show_life() = 0;
  // A child process of this one that renews the lease; -1: none.
  virtual int lease_process() const = 0;
  virtual void release() = 0;

  // Restarts that the run has used, kept also while no agent holds the record. Written by the
  // holder. `is_left`: it was asked to end; where no other agent goes on, the next run starts with
  // all of them.
  struct Restarts {
    int used = 0;
    bool is_left = false;
  };
  virtual Result<Restarts> restarts() = 0;
  virtual Status set_restarts(const Restarts& restarts) = 0;
  // The run has ended: nothing of it stays.
  virtual void remove() = 0;
};

// A file that all nodes see: its lock is held by the coordinator, and ends with it.
std::unique_ptr<CoordinatorRecord> file_coordinator_record(const std::string& path);

struct EtcdSettings {
  std::string url;                 // "http://HOST:PORT"
  std::string prefix;              // of the keys
  std::string ca_cert, cert, key;  // files, or empty
  std::string user, password;      // or empty
  int timeout = 60;                // seconds, of a request
  int lease = 15;                  // seconds after which a holder that is gone has lost the record
};
// Keys of etcd, by the JSON gateway of its version 3 and libcurl, which is opened here: an error
// where it is missing. A child process keeps the lease.
Result<std::unique_ptr<CoordinatorRecord>> etcd_coordinator_record(const EtcdSettings& settings);

}  // namespace torchbridge
