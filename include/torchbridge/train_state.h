// What a checkpoint holds of a training beside its tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <torchbridge/part.h>

namespace torchbridge::train {

// A position in the data set. Independent of the world size. With the seed and the kind of order it
// is the whole state of a sampler.
struct SamplerPosition {
  std::int64_t epoch = 0;
  std::int64_t consumed = 0;  // samples of this epoch, by all ranks together

  bool operator==(const SamplerPosition&) const = default;
};

// The kind, options and parameter groups of an optimizer, without its state.
struct OptimizerRecord {
  struct GroupRecord {
    std::string name;
    // "lr", "momentum", "beta1", "eps" ...; flags are 0 or 1.
    std::map<std::string, double> options;
    std::vector<std::string> parameters;  // names in the order of the group, those of all ranks

    bool operator==(const GroupRecord&) const = default;
  };
  std::string kind;  // a name of optimizer_kinds(), such as "sgd"; empty if unknown
  std::vector<GroupRecord> groups;

  bool operator==(const OptimizerRecord&) const = default;
};

// Indices of parameters, bucket by bucket, in the order in which DistributedDataParallel reduces
// the buckets.
using BucketLayout = std::vector<std::vector<std::size_t>>;

// What the numbers of a training set stand for, as names are printed; empty: without names.
struct DataNames {
  std::vector<std::string> classes, columns;

  bool operator==(const DataNames&) const = default;
};

// The same on all ranks. What parts of a run have of their own is in `parts`, and they alone know
// their numbers.
struct TrainState {
  std::string run;  // id of the training, the same over all its starts; empty: started by a version
                    // without ids
  std::int64_t step = 0;          // optimizer steps done
  SamplerPosition position = {};  // of the next sample
  std::int64_t samples_seen = 0;  // by all ranks, in all epochs
  std::string train_set;          // fingerprint of the training set; empty: not known
  DataNames names;                // of the training set
  BucketLayout buckets;           // as rebuilt after DDP's first step: makes resuming bit-exact
  PartNumbers parts;              // "grad_scaler.scale": of each part that has state

  bool operator==(const TrainState&) const = default;
};

}  // namespace torchbridge::train
