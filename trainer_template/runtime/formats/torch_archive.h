// The zip archive of torch.save: a pickle, and each storage as a record of bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "trainer_template/runtime/base/file_layer.h"
#include "trainer_template/runtime/formats/pickle.h"

namespace torchbridge::train {

// Whether torch.save probably wrote the file: by its first bytes, or by its extension (.pt, .pth). Throws TrainError,
// which names the file, if it is not a regular file.
bool is_torch_file(const std::filesystem::path& path);

// One thread. Members throw TrainError, which names the file and the error. Reading a record compares its CRC-32, which
// torch.load ignores.
class TorchArchive {
 public:
  explicit TorchArchive(const std::filesystem::path& path);
  ~TorchArchive();
  TorchArchive(const TorchArchive&) = delete;
  TorchArchive& operator=(const TorchArchive&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // The saved object, without the elements of tensors.
  Pickled content() const;

  // Size in bytes of the storage of a tensor of content(). Throws if the archive has another size for it.
  std::uint64_t storage_bytes(const PickledTensor& tensor) const;
  // REQUIRES: `into` has room for storage_bytes(tensor) bytes.
  void read_storage(const PickledTensor& tensor, void* into) const;

 private:
  struct Zip;
  std::filesystem::path path_;
  std::unique_ptr<Zip> zip_;
};

// Writes a new file that torch.load(weights_only=True) reads, also with mmap=True. `storages`: the bytes of each
// storage that `content` refers to, by its key. The same content gives the same bytes. Throws TrainError.
void write_torch_archive(FileLayer& files, const std::filesystem::path& path, const PickledValue& content,
                         const std::map<std::string, std::string_view>& storages);

}  // namespace torchbridge::train
