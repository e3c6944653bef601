// Tensors from files of Python's torch.save, read without executing anything.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "trainer_template/runtime/formats/torch_archive.h"
#include "trainer_template/runtime/tensors/named_tensors.h"

namespace torchbridge::train {

// One thread. Members throw TrainError, which names the file and the error.
class TorchFile {
 public:
  explicit TorchFile(const std::filesystem::path& path);
  ~TorchFile();

  const std::filesystem::path& path() const { return archive_.path(); }
  const PickledValue& content() const { return *content_; }

  // A tensor on the CPU. Tensors that share memory in Python share it here.
  at::Tensor tensor(const PickledTensor& tensor);

  // The tensors of a dictionary of the file, in its order. Throws if a value is not a tensor or a key occurs twice.
  NamedTensors tensors(const PickledValue& dict);

  // The model's state_dict (find_state_dict()), without the prefix "module." that DistributedDataParallel adds.
  NamedTensors state_dict();

 private:
  struct Storages;
  TorchArchive archive_;
  Pickled content_;
  std::unique_ptr<Storages> storages_;
};

}  // namespace torchbridge::train
