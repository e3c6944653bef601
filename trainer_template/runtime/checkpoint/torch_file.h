// Tensors from files of Python's torch.save, read without executing anything.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "trainer_template/runtime/formats/torch_archive.h"
#include "trainer_template/runtime/tensors/named_tensors.h"

namespace torchbridge::train {

// One thread. Members throw TrainError, which names the file and what is wrong with it.
class TorchFile {
 public:
  explicit TorchFile(const std::filesystem::path& path);
  ~TorchFile();

  const std::filesystem::path& path() const { return archive_.path(); }
  const PickledValue& content() const { return *content_; }

  // On the CPU. Tensors that share memory in Python do so here.
  at::Tensor tensor(const PickledTensor& tensor);

  // The tensors of one dictionary in it, in its order. Throws where a value is no tensor or a key is there twice.
  NamedTensors tensors(const PickledValue& dict);

  // A model's state_dict: all that was saved, or what stands there as "model", "state_dict" or "model_state_dict". The
  // prefix "module." of a model that DistributedDataParallel wraps is left out.
  NamedTensors state_dict();

 private:
  struct Storages;
  TorchArchive archive_;
  Pickled content_;
  std::unique_ptr<Storages> storages_;
};

}  // namespace torchbridge::train
